-- Acks in a transaction: remembered as items, applied by the commit. Whether one may be applied is asked when it is
-- added too, so that whoever lost a lease or a partition learns it before the work.
local consumer = require('mts.consumer')
local delivery = require('mts.delivery')
local durables = require('mts.durable')
local errors = require('mts.errors')
local position = require('mts.position')
local schema = require('mts.schema')
local sessions = require('mts.session')
local transactions = require('mts.transaction')
local txn = require('mts.txn')

local C, I = schema.consumers, schema.transaction_item
local M = {}

local function refuse_moved(ack, stands_at, from, partition)
    errors.refuse('transaction_conflict', 'this durable was acked or moved by somebody else since it was read',
        {subject = ack.subject, durable = ack.durable, partition = partition, position = stands_at, from = from})
end

-- An ack moves on over what the filter leaves out, which its reader need not know. What expired since is left out too:
-- so the ack must reach further, or somebody may have acked the same.
local function check_stands_at(ack, row, one, stands_at)
    if one.from ~= stands_at and not (one.sequence > stands_at
            and position.is_passed(row, one.from, stands_at, one.partition)) then
        refuse_moved(ack, stands_at, one.from, one.partition)
    end
end

-- What lies before the position it was read from was read before that moved: acked already, or passed over by a seek.
local function check_behind(one)
    if one.sequence <= one.from then
        errors.refuse('bad_request', 'a transaction acks what was read behind `from`',
            {sequence = one.sequence, from = one.from, partition = one.partition})
    end
end

-- A partition that is read to its end goes along with the others, which is nobody's ack: since its last it may have
-- been read from any position up to the durable's.
local function check_partition(ack, row, one, acked)
    local floor = row[C.last_sequence]
    local stands_at = acked > floor and acked or floor
    if one.from == nil or one.from > stands_at then
        refuse_moved(ack, stands_at, one.from, one.partition)
    elseif one.from < acked then
        check_stands_at(ack, row, one, acked)
    end
    check_behind(one)
end

-- How each kind is applied: {subject, durable} and its own fields.
local APPLY = {}

-- `from` is the position that was read from: of two who read from the same, one is counted. The fence tells a durable
-- that was moved and moved back, or made again, from one that stands where it stood.
function APPLY.position(ack)
    local row = durables.need(ack.subject, ack.durable, 'ordered')
    check_stands_at(ack, row, ack, row[C.last_sequence])
    check_behind(ack)
    if ack.fence ~= durables.fence(row) then
        refuse_moved(ack, row[C.last_sequence], ack.from)
    end
    consumer.apply_ack(ack.subject, ack.durable, ack.sequence)
end

function APPLY.partitions(ack)
    local acks = {}
    for i, one in ipairs(ack.partitions) do
        acks[i] = {one.partition, one.fence, one.sequence}
    end
    sessions.apply_acks(ack.subject, ack.durable, ack.session_id, ack.epoch, acks, function(row, i, acked)
        check_partition(ack, row, ack.partitions[i], acked)
    end)
end

function APPLY.lease(ack)
    delivery.apply_ack(ack.subject, ack.durable, ack.lease_id, ack.sequences)
end

-- Inside the transaction that commits.
function M.apply(ack)
    APPLY[ack.kind](ack)
end

-- It was applied and is taken back to a savepoint: what is kept in memory of its durable may be too new.
function M.undone(ack)
    local row = durables.find(ack.subject, ack.durable)
    if row then
        sessions.forget(row)
    end
end

-- Does nothing, or refuses.
local function try(ack)
    local before = box.savepoint()
    M.apply(ack)
    box.rollback_to_savepoint(before)
    M.undone(ack)
end

-- A later ack of the same reader takes the place of the earlier. Each returns the joined ack, and for how many more
-- rows it stands.
local JOIN = {}

function JOIN.position(old, new)
    if new.from ~= old.from and new.from ~= old.sequence then
        refuse_moved(new, old.from, new.from)
    end
    new.from, new.fence = old.from, old.fence
    if new.sequence < old.sequence then
        new.sequence = old.sequence
    end
    return new, 0
end

function JOIN.partitions(old, new)
    local known, added = {}, 0
    for _, one in ipairs(old.partitions) do
        known[one.partition] = one
    end
    for _, one in ipairs(new.partitions) do
        local before = known[one.partition]
        if before then
            if one.from ~= before.from and one.from ~= before.sequence then
                refuse_moved(new, before.sequence, one.from, one.partition)
            end
            one.from, one.fence = before.from, before.fence
            one.sequence = before.sequence > one.sequence and before.sequence or one.sequence
        else
            added = added + 1
        end
        known[one.partition] = one
    end
    new.partitions = {}
    for _, one in pairs(known) do
        table.insert(new.partitions, one)
    end
    return new, added
end

-- Sequences in order, each once.
local function distinct(sequences)
    table.sort(sequences, function(one, other) return one < other end)
    local kept = {}
    for _, sequence in ipairs(sequences) do
        if #kept == 0 or kept[#kept] ~= sequence then
            table.insert(kept, sequence)
        end
    end
    return kept
end

function JOIN.lease(old, new)
    local all = {}
    for _, sequences in ipairs{old.sequences, new.sequences} do
        for _, sequence in ipairs(sequences) do
            table.insert(all, sequence)
        end
    end
    new.sequences = distinct(all)
    return new, #new.sequences - #old.sequences
end

-- The kind of an ack, who sends it (one item each), and for how many rows it stands.
local function classify(ack)
    if ack.lease_id ~= nil then
        ack.sequences = distinct(ack.sequences)
        return 'lease', ack.lease_id, #ack.sequences
    elseif ack.session_id ~= nil then
        return 'partitions', ack.session_id, #ack.partitions
    end
    if ack.fence == nil then
        ack.fence = durables.fence(durables.need(ack.subject, ack.durable, 'ordered'))
    end
    return 'position', '', 1
end

-- Add an ack {sequence, from, fence}, {session_id, epoch, partitions = {{partition, fence, sequence, from}, ...}} or
-- {lease_id, sequences} of a durable.
function M.add(id, subject, durable, ack)
    return txn.run(function()
        transactions.need_open(id)
        local who, rows
        ack.subject, ack.durable = subject, durable
        ack.kind, who, rows = classify(ack)
        local key = table.concat({ack.kind, subject, durable, who}, '/')
        local item = transactions.find(id, key)
        if item then
            ack, rows = JOIN[ack.kind](item[I.data], ack)
        end
        try(ack)
        if item then
            transactions.take_rows(id, rows)
            transactions.change(item, ack)
        else
            transactions.add(id, 'ack', ack, rows, key)
        end
        return true
    end)
end

return M
