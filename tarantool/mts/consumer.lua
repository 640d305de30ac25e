-- Durables as callers see them: made, described, listed, read, acked, moved and deleted; and the specification's view
-- of them, in which a durable is an ordered one with a position.
local commit = require('mts.commit')
local delivery = require('mts.delivery')
local durables = require('mts.durable')
local errors = require('mts.errors')
local message = require('mts.message')
local position = require('mts.position')
local schema = require('mts.schema')
local sessions = require('mts.session')
local settings = require('mts.consumer_settings')
local txn = require('mts.txn')

local D, E, F, P = schema.delivery, schema.message, schema.consumers, schema.partition
local M = {}

local MOST_LANES = 1000 -- described by one call, which nobody else is served beside

-- Where the partitions are read on: behind what is acked, or, for a shared durable, behind what was handed out.
local function read_from(row)
    if durables.mode(row) == 'shared' then
        return row[F.next_sequence] - 1, nil
    end
    return row[F.last_sequence], position.ahead(row)
end

-- How many messages a durable has not acked. With a filter it counts all, also those that it will pass over: which
-- they are is known only when they are read.
local function lag_of(row)
    local from, ahead = read_from(row)
    return message.count_after(row[F.subject], from, ahead) + tonumber(schema.present(row[F.outstanding]) or 0)
end

-- Offset of the last message up to a position: the one before the first behind it.
local function offset_at(lane, from)
    local first = message.first_behind(lane[P.subject], lane[P.partition], from)
    local next_offset = lane[P.next_offset]
    if first then
        local left = first[E.sequence] - from -- of this extent, when the position lies in it
        local count = left < first[E.count] and left or first[E.count]
        next_offset = first[E.offset] + 1 - count
    end
    return next_offset > 0 and next_offset - 1 or nil
end

-- All partitions, and how many messages of them are left to read. The lag of a partition of a shared durable is what
-- was never handed out; `outstanding` is the rest.
local function describe_partitions(row)
    local from, ahead = read_from(row)
    local holders, described, total = sessions.holders(row), schema.array{}, 0
    for _, lane in ipairs(box.space.partition:select({row[F.subject]})) do
        local partition = lane[P.partition]
        local own = ahead and ahead[partition] or from
        table.insert(described, {partition = partition, position = own, offset = offset_at(lane, own),
            lag = message.lane_count_after(lane, own), session_id = holders[partition]})
        total = total + described[#described].lag
    end
    return described, total
end

function M.describe(row)
    local described = settings.of(row)
    described.durable, described.subject = row[F.durable_name], row[F.subject]
    described.mode, described.created_at = durables.mode(row), schema.present(row[F.created_at])
    described.last_sequence, described.latest_sequence = row[F.last_sequence], message.latest(row[F.subject])
    described.outstanding = schema.present(row[F.outstanding]) or 0
    described.next_sequence = described.mode == 'shared' and row[F.next_sequence] or nil
    described.partitions, described.lag = describe_partitions(row)
    described.lag = described.lag + tonumber(described.outstanding)
    described.sessions = sessions.count(row)
    return described
end

-- Remove up to `limit` of the rows a durable has, at last its own, inside a transaction. Returns how many went; fewer
-- than `limit` when it is gone. Also for durables of a deleted subject.
function M.remove_some(row, limit)
    local key, count = durables.key(row), 0
    for _, name in ipairs{'delivery', 'session', 'consumer_partition'} do
        for _, entry in ipairs(box.space[name]:select(key, {iterator = 'EQ', limit = limit - count})) do
            box.space[name]:delete{entry[1], entry[2], entry[3]}
            count = count + 1
        end
    end
    if count < limit then
        delivery.forget(row)
        sessions.forget(row)
        box.space.consumers:delete(key)
        count = count + 1
    end
    return count
end

-- What stands under this name for nobody: being deleted, or of a subject that was.
local function stale(subject, durable)
    local row = box.space.consumers:get{durable, subject}
    return row ~= nil and not durables.is_current(row) and row or nil
end

local function clear_stale(subject, durable)
    repeat
        local more = txn.run(function()
            local row = stale(subject, durable)
            if row == nil then
                return false
            end
            M.remove_some(row, schema.PER_TRANSACTION)
            return box.space.consumers:get{durable, subject} ~= nil
        end)
    until not more
end

-- Run `fn` in a transaction that finds the name free of what is stale: somebody may delete the durable meanwhile.
local function run_cleared(subject, durable, fn)
    local result
    repeat
        clear_stale(subject, durable)
        result = txn.run(function()
            return not stale(subject, durable) and fn() or nil
        end)
    until result
    return result
end

-- Make a durable, or change the settings of one that exists (`start` is for a new one only).
function M.put(subject, durable, options)
    settings.check_name(durable)
    return run_cleared(subject, durable, function()
        local row, mode = durables.find(subject, durable), schema.present(options.mode)
        if row then
            durables.need(subject, durable, mode)
            local changed = settings.merge(row, options)
            if changed then
                row = durables.change(row, {{'=', F.settings, changed}})
                sessions.forget(row)
                txn.touch(durables.name(row)) -- whoever waits may be waiting with another filter
            end
            return {consumer = M.describe(row), created = false}
        end
        if mode ~= nil and mode ~= 'ordered' and mode ~= 'shared' then
            errors.refuse('bad_request', "a durable's mode is 'ordered' or 'shared'")
        end
        local start = schema.present(options.start) or 0
        local last_sequence = start > 0 and start - 1 or 0
        position.check_end(last_sequence)
        row = durables.create(subject, durable, mode or 'ordered', last_sequence, settings.first(subject, options))
        return {consumer = M.describe(row), created = true}
    end)
end

function M.get(subject, durable)
    return txn.run(function()
        return M.describe(durables.need(subject, durable))
    end)
end

-- Durables of a subject, by name after `after`: up to `limit`, or fewer where they have many partitions; and whether
-- there are more.
function M.list(subject, after, limit)
    return txn.run(function()
        local found, lanes, more = schema.array{}, 0, false
        for _, row in box.space.consumers.index.subject:pairs({subject, after or ''}, {iterator = 'GT'}) do
            if row[F.subject] ~= subject then
                break
            end
            if durables.is_current(row) then
                more = #found == limit or lanes >= MOST_LANES
                if more then
                    break
                end
                table.insert(found, M.describe(row))
                lanes = lanes + #found[#found].partitions
            end
        end
        return {consumers = found, more = more}
    end)
end

function M.delete(subject, durable)
    txn.run(function()
        durables.mark_deleted(durables.need(subject, durable))
    end)
    clear_stale(subject, durable)
    return true
end

-- Everything up to `sequence` is read, inside a transaction. `fence`: of the page that was read, if it is shown.
function M.apply_ack(subject, durable, sequence, fence)
    local row = durables.need(subject, durable, 'ordered')
    sessions.refuse_if_alive(row)
    if fence ~= nil and fence ~= durables.fence(row) then
        errors.refuse('position_moved', 'this durable was moved, or made again, since that was read; '
            .. 'read on from its position', {position = row[F.last_sequence], fence = durables.fence(row)})
    end
    return position.ack(row, sequence)
end

function M.ack(subject, durable, sequence, fence)
    return txn.run(function()
        return {last_sequence = M.apply_ack(subject, durable, sequence, fence)[F.last_sequence]}
    end)
end

-- Delivery state of a shared durable goes from its end on, and `next_sequence` goes down with it: wherever this stops,
-- what was not acked is handed out again.
local function drop_deliveries(row)
    local rows = box.space.delivery:select(durables.key(row), {iterator = 'REQ', limit = schema.PER_TRANSACTION})
    local first = row[F.next_sequence]
    local outstanding = row[F.outstanding]
    for _, entry in ipairs(rows) do
        box.space.delivery:delete{entry[D.durable_name], entry[D.subject], entry[D.last]}
        first, outstanding = entry[D.first], outstanding - entry[D.count]
    end
    row = durables.change(row, {{'=', F.next_sequence, first}, {'=', F.outstanding, outstanding}})
    return row, #rows
end

-- Begin again at `sequence`, forward or back. Whatever readers hold is void.
function M.seek(subject, durable, sequence)
    local described
    repeat
        described = txn.run(function()
            local row = durables.need(subject, durable)
            local target = position.before(row, sequence)
            if durables.mode(row) == 'shared' then
                local dropped
                row, dropped = drop_deliveries(row)
                if dropped == schema.PER_TRANSACTION then
                    return nil
                end
                row = durables.change(row, {{'=', F.next_sequence, target + 1}})
            end
            sessions.forget(row)
            return M.describe(position.seek(row, target))
        end)
    until described
    return described
end

-- The least position of the subject's important durables: nothing behind it may expire. nil when there are none.
function M.held_sequence(subject)
    local held
    for _, row in box.space.consumers.index.subject:pairs({subject}, {iterator = 'EQ'}) do
        if durables.is_current(row) and settings.is_important(row)
                and (held == nil or row[F.last_sequence] < held) then
            held = row[F.last_sequence]
        end
    end
    return held
end

-- The specification's functions.

function M.position(durable_name, subject)
    return txn.run(function()
        local row = durables.find(subject, durable_name)
        return row and row[F.last_sequence] or 0
    end)
end

-- How many messages a durable has not acked; all of them for one that is not known.
function M.new_count(durable_name, subject)
    return txn.run(function()
        local row = durables.find(subject, durable_name)
        return row and lag_of(row) or message.count_after(subject, 0)
    end)
end

function M.update(durable_name, subject, last_sequence)
    if last_sequence > commit.watermark() then
        errors.refuse('bad_request', 'last_sequence lies beyond the last message')
    end
    return run_cleared(subject, durable_name, function()
        if durables.find(subject, durable_name) == nil then
            settings.check_name(durable_name)
            durables.create(subject, durable_name, 'ordered', last_sequence)
        else
            M.apply_ack(subject, durable_name, last_sequence)
        end
        return true
    end)
end

function M.of_subject(subject)
    return txn.run(function()
        local found = schema.array{}
        for _, row in box.space.consumers.index.subject:pairs({subject}, {iterator = 'EQ'}) do
            if durables.is_current(row) then
                table.insert(found, row)
            end
        end
        return found
    end)
end

return M
