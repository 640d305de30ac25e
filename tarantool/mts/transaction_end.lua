-- How a transaction ends: committed, all of it in one write; or aborted, and then nothing of it is left. What decides,
-- decides in one call: a commit, an abort, the timeout, or a newer session of one of its producers.
local acks = require('mts.transaction_ack')
local clock = require('mts.clock')
local errors = require('mts.errors')
local idempotency = require('mts.idempotency')
local object = require('mts.object')
local outcome = require('mts.upload_outcome')
local outcomes = require('mts.transaction_outcome')
local schema = require('mts.schema')
local subjects = require('mts.subject')
local transactions = require('mts.transaction')
local txn = require('mts.txn')
local upload = require('mts.upload')

local F, I, U = schema.transaction, schema.transaction_item, schema.upload
local M = {}

local MOST_SHOWN = 100

-- Undo some of what an aborting transaction holds; true when nothing is left.
local function undo_some(effects, id, put_grace)
    local row = box.space.transaction:get(id)
    if row == nil or row[F.state] ~= 'aborting' then
        return true
    end
    local items = transactions.items(id, schema.PER_TRANSACTION)
    for _, item in ipairs(items) do
        local staged = item[I.kind] == 'upload' and box.space.upload:get(item[I.data][1])
        if staged then
            outcome.abandon(effects, staged[U.id], 'transaction_aborted', put_grace)
        end
        box.space.transaction_item:delete{id, item[I.no]}
    end
    if #items == schema.PER_TRANSACTION then
        return false
    end
    outcomes.aborted(id)
    return true
end

local function undo(id, put_grace)
    repeat
        local done = txn.run(undo_some, id, put_grace)
    until done
end

-- Uploads {row, item} in the order in which they become visible: as they came, those of a producer by their seqnos.
local function in_order(uploads)
    local places = {}
    for place, one in ipairs(uploads) do
        if one.row[U.producer_no] ~= nil then
            local no = tonumber(one.row[U.producer_no])
            places[no] = places[no] or {}
            table.insert(places[no], place)
        end
    end
    for _, own in pairs(places) do
        local sorted = {}
        for _, place in ipairs(own) do
            table.insert(sorted, uploads[place])
        end
        table.sort(sorted, function(one, other) return one.row[U.seqno] < other.row[U.seqno] end)
        for i, place in ipairs(own) do
            uploads[place] = sorted[i]
        end
    end
    return uploads
end

-- Why an upload cannot become visible: 'open' while it may still, else for ever; nil when it can.
local function hindrance(staged, mark)
    if staged == nil then
        return 'upload_gone'
    end
    if staged[U.state] ~= 'stored' then
        return staged[U.state]
    end
    local subject_row = subjects.find(staged[U.subject])
    if subject_row == nil or subject_row[schema.subject.incarnation] ~= staged[U.incarnation] then
        return 'subject_deleted'
    end
    if object.in_trash(upload.object_name(staged)) then
        return 'already_deleted'
    end
    if mark[2] ~= nil and idempotency.stored_sequence(subject_row, mark[2], mark[3]) then
        return 'idempotency_key_used'
    end
end

-- The uploads of a transaction. Refuses when one cannot become visible, or not yet.
local function collect(id, items)
    local uploads, open = {}, schema.array{}
    for _, item in ipairs(items) do
        local mark = item[I.kind] == 'upload' and item[I.data]
        local staged = mark and box.space.upload:get(mark[1])
        local problem = mark and hindrance(staged, mark)
        if problem == 'open' then
            table.insert(open, #open < MOST_SHOWN and mark[1] or nil)
        elseif problem then
            errors.refuse('transaction_conflict', ('an upload of this transaction cannot become visible: %s')
                :format(problem), {upload_id = mark[1], cause = problem})
        elseif mark then
            table.insert(uploads, {row = staged, mark = mark})
        end
    end
    if #open > 0 then
        errors.refuse('transaction_conflict', 'finish or abort the open uploads of this transaction first',
            {transaction_id = id, state = 'open', cause = 'uploads_open', uploads = open})
    end
    return in_order(uploads)
end

local function publish(effects, uploads, put_grace)
    local receipts = schema.array{}
    for _, one in ipairs(uploads) do
        local count = one.row[U.sizes] ~= nil and #one.row[U.sizes] or 1
        local row, partition, offset = outcome.publish(effects, one.row, put_grace)
        if one.mark[2] ~= nil then
            idempotency.record(effects, subjects.find(row[U.subject]), one.mark[2], one.mark[3], row[U.sequence])
        end
        table.insert(receipts, {row[U.id], row[U.sequence], partition, offset, count})
    end
    return receipts
end

-- All of it, or a refusal: whatever can be refused comes before the first message gets its sequence.
local function commit_all(effects, id, put_grace)
    local items = transactions.items(id)
    local uploads = collect(id, items)
    for _, item in ipairs(items) do
        if item[I.kind] == 'ack' then
            acks.apply(item[I.data])
        end
    end
    local receipts = publish(effects, uploads, put_grace)
    for _, item in ipairs(items) do
        box.space.transaction_item:delete{id, item[I.no]}
    end
    return outcomes.committed(id, receipts)
end

-- Returns the row, and the refusal that made it aborting.
local function decide(effects, id, put_grace)
    local row = transactions.need(id)
    if row[F.state] ~= 'open' then
        return row
    end
    if transactions.is_over(row) then
        return transactions.mark_aborting(row, 'timeout')
    end
    local before = box.savepoint()
    local ok, result = pcall(commit_all, effects, id, put_grace)
    if ok then
        return result
    end
    if not errors.is_refusal(result) or result.code == 'unavailable'
            or result.details and result.details.cause == 'uploads_open' then
        error(result, 0)
    end
    box.rollback_to_savepoint(before)
    for _, item in ipairs(transactions.items(id)) do
        if item[I.kind] == 'ack' then
            acks.undone(item[I.data])
        end
    end
    return transactions.mark_aborting(row, result.details and result.details.cause or result.code), result
end

-- Everything becomes visible in one write, or the transaction is aborted; only open uploads leave it as it is. Asked
-- again, the same is answered for a day, later without the receipts.
function M.commit(id, put_grace)
    local refusal, repeated
    local row = txn.run(function(effects)
        local decided
        repeated = transactions.need(id)[F.state] == 'committed'
        decided, refusal = decide(effects, id, put_grace)
        return decided
    end)
    if row[F.state] == 'committed' then
        local described = transactions.describe(row)
        described.repeated = repeated
        return described
    end
    undo(id, put_grace)
    if refusal == nil then
        transactions.refuse_ended(transactions.need(id))
    end
    local details = {transaction_id = id, state = 'aborted', reason = row[F.reason]}
    for name, value in pairs(refusal.details or {}) do
        details[name] = details[name] or value
    end
    errors.refuse('transaction_conflict', 'the transaction was aborted: ' .. refusal.message, details)
end

local function abort(id, reason, put_grace)
    local row = txn.run(function()
        local found = transactions.need(id)
        return found[F.state] == 'open' and transactions.mark_aborting(found, reason) or found
    end)
    undo(id, put_grace)
    return row
end

function M.abort(id, put_grace)
    local row = abort(id, 'aborted', put_grace)
    if row[F.state] == 'committed' then
        transactions.refuse_ended(row)
    end
    return transactions.get(id)
end

-- A new session of a producer, and the end of the transaction that the old one was in.
function M.start_producer(subject, producer_id, put_grace, headers)
    local started = outcome.start_producer(subject, producer_id, put_grace, headers)
    if started.transaction_id then
        undo(started.transaction_id, put_grace)
        started.transaction_id = nil
    end
    return started
end

local function forget(id)
    return txn.run(function()
        local row = box.space.transaction:get(id)
        if row and row[F.due_at] <= clock.steady_ms() then
            outcomes.forget(row)
        end
    end)
end

local clock_checked = false -- were transactions of earlier runs compared with the clock?

-- What was begun before the clock was set back, in an earlier run, is over: no deadline of it will come.
local function begun_too_late()
    local found = {}
    for _, row in box.space.transaction.index.primary:pairs({clock.id_start(clock.milliseconds())},
            {iterator = 'GE'}) do
        if row[F.state] == 'open' and transactions.is_over(row) then
            table.insert(found, row[F.id])
        end
    end
    return found
end

-- Abort what is out of time, go on with what was left half undone, forget outcomes of yesterday. Returns how many.
function M.tick(limit, put_grace)
    local now, due = clock.steady_ms(), {}
    if not clock_checked then
        due, clock_checked = begun_too_late(), true
    end
    for _, row in box.space.transaction.index.due:pairs() do
        if row[F.due_at] > now or #due >= limit then
            break
        end
        table.insert(due, row[F.id])
    end
    for _, id in ipairs(due) do
        local row = box.space.transaction:get(id)
        if row and (row[F.state] == 'open' or row[F.state] == 'aborting') then
            abort(id, 'timeout', put_grace)
        elseif row then
            forget(id)
        end
    end
    return #due
end

return M
