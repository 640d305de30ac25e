-- Shared durables: work that is leased message by message. Leased and not acked in time, or given back, a message is
-- handed out again; when its tries are used up it goes to the dead-letter subject.
local clock = require('mts.clock')
local commit = require('mts.commit')
local durables = require('mts.durable')
local errors = require('mts.errors')
local extent = require('mts.extent')
local give_up = require('mts.delivery_give_up')
local quarantine = require('mts.quarantine')
local ranges = require('mts.delivery_range')
local scan = require('mts.scan')
local schema = require('mts.schema')
local settings = require('mts.consumer_settings')
local txn = require('mts.txn')
local uuid = require('uuid')

local C, D, F = schema.consumers, schema.delivery, schema.message
local M = {}

local MOST = 1000 -- messages a call
-- By durable: how far its leases of an earlier run were compared with the clock, {due_at, last}; true when all were.
local clock_checked = {}

local function after_seconds(now, seconds)
    return now + math.ceil(seconds * 1000)
end

-- What was leased before the clock was set back, in an earlier run, looks leased for long: it is due now. Looks at some
-- a call; true when all were looked at.
local function compare_clock(row, now)
    local name = durables.name(row)
    if clock_checked[name] == true then
        return true
    end
    local from, early, looked, reached = clock_checked[name] or {now, 0}, {}, 0, nil
    for _, entry in box.space.delivery.index.due:pairs({row[C.durable_name], row[C.subject], from[1], from[2]},
            {iterator = 'GT'}) do
        if entry[D.durable_name] ~= row[C.durable_name] or entry[D.subject] ~= row[C.subject]
                or looked == schema.PER_TRANSACTION then
            break
        end
        looked, reached = looked + 1, {entry[D.due_at], entry[D.last]}
        if entry[D.granted_at] > now then
            table.insert(early, ranges.open(entry))
        end
    end
    local most = settings.tries(row)
    for _, range in ipairs(early) do
        range.granted_at, range.due_at = now, now
        ranges.write(row, range, most)
    end
    if #early == 0 then -- what was written may not become durable: then they are looked at again
        clock_checked[name] = looked < schema.PER_TRANSACTION or reached
    end
    return clock_checked[name] == true
end

-- A durable is gone.
function M.forget(row)
    clock_checked[durables.name(row)] = nil
end

local function due_ranges(row, now, limit)
    local due = {}
    for _, entry in box.space.delivery.index.due:pairs({row[C.durable_name], row[C.subject]}, {iterator = 'EQ'}) do
        if entry[D.due_at] > now or #due == limit then
            break
        end
        table.insert(due, ranges.open(entry))
    end
    return due
end

-- Hand out again what is due, into `work`; what was tried often enough goes to the dead letters.
local function take_due(effects, work, row)
    local most, budget = settings.tries(row), schema.PER_TRANSACTION
    for _, range in ipairs(due_ranges(row, work.now, math.min(work.left, budget))) do
        if work.left <= 0 or budget <= 0 then
            break
        end
        if most and range.deliveries >= most then
            local gone = give_up.some(effects, row, range, 'lease_ended', budget)
            work.dead_lettered, budget = work.dead_lettered + gone, budget - gone
        else
            local taken, rest, rows = ranges.split(row[C.subject], range, math.min(work.left, range.count))
            ranges.erase(row, range)
            if rest then
                ranges.write(row, rest, most)
            end
            taken.deliveries = taken.deliveries + 1
            work.add(taken, rows)
            budget = budget - 1
        end
    end
    return budget
end

-- Hand out what was never handed out, up to `limit` messages. Returns the new `next_sequence`, and whether there is
-- more to look at.
local function take_new(work, row, limit)
    local subject, start, filter = row[C.subject], row[C.next_sequence], settings.of(row).filter
    local rows, next_sequence, looked = scan.collect(scan.source(subject, start, commit.watermark()),
        {limit = math.min(work.left, filter and limit or work.left), filter = filter,
            begin = function() return start end})
    for _, found in ipairs(rows) do
        local range = {first = extent.first(found), last = found[F.sequence], count = tonumber(found[F.count]),
            deliveries = 1}
        local before = work.ranges[#work.ranges]
        if filter == nil and before and before.is_new then -- what is read without a filter has nothing between
            before.last, before.count = range.last, before.count + range.count
            work.add(nil, {found})
        else
            range.is_new = true
            work.add(range, {found})
        end
        work.fresh = work.fresh + range.count
    end
    return looked and (next_sequence or commit.watermark() + 1) or start, next_sequence ~= nil
end

local function new_work(limit)
    local work = {now = clock.steady_ms(), left = limit, ranges = {}, rows = schema.array{}, dead_lettered = 0,
        fresh = 0}
    function work.add(range, rows)
        if range then
            table.insert(work.ranges, range)
        end
        for _, row in ipairs(rows) do
            table.insert(work.rows, row)
            work.left = work.left - tonumber(row[F.count])
        end
    end
    return work
end

local function grant(work, row, seconds)
    local lease_id, due_at = uuid.str(), after_seconds(work.now, seconds)
    table.sort(work.ranges, function(a, b) return a.last < b.last end)
    table.sort(work.rows, function(a, b) return a[F.sequence] < b[F.sequence] end)
    local given, most = schema.array{}, settings.tries(row)
    for _, range in ipairs(ranges.join(row[C.subject], work.ranges)) do
        range.lease_id, range.granted_at, range.due_at = lease_id, work.now, due_at
        ranges.write(row, range, most)
        table.insert(given, {range.first, range.last, range.deliveries})
    end
    return lease_id, due_at, given
end

-- Milliseconds until something may be leased again; nil when nothing is leased or waits.
local function next_due_in(row, now)
    local next_one = box.space.delivery.index.due:select(durables.key(row), {iterator = 'EQ', limit = 1})[1]
    return next_one and (next_one[D.due_at] > now and next_one[D.due_at] - now or 0)
end

-- Lease up to `limit` messages for `seconds` (`ack_wait` by default): first what is due again, then new ones. `tries`
-- is {{first, last, deliveries}, ...} over the sequences of `rows`.
function M.lease(subject, durable, limit, seconds)
    return txn.run(function(effects)
        local row, work = durables.need(subject, durable, 'shared'), new_work(math.min(limit, MOST))
        local compared = compare_clock(row, work.now)
        local budget = take_due(effects, work, row)
        local next_sequence, more = row[C.next_sequence], budget <= 0 or not compared
        if work.left > 0 and budget > 0 then
            local unread
            next_sequence, unread = take_new(work, row, budget)
            more = more or unread
        end
        local lease_id, expires_at, given
        if #work.ranges > 0 then
            lease_id, expires_at, given = grant(work, row, schema.present(seconds) or settings.of(row).ack_wait)
        end
        if #work.ranges > 0 or work.dead_lettered > 0 or next_sequence ~= row[C.next_sequence] then
            row = ranges.settle(row, work.fresh - work.dead_lettered, next_sequence)
        end
        return {lease_id = lease_id, rows = quarantine.mark(work.rows), tries = given or schema.array{},
            expires_at_ms = expires_at, next_due_in_ms = more and 0 or next_due_in(row, work.now),
            dead_lettered = work.dead_lettered}
    end)
end

local function check_sequences(sequences)
    if #sequences == 0 or #sequences > MOST then
        errors.refuse('bad_request', ('give 1 to %d sequences'):format(MOST))
    end
end

-- Do `change(part)` with the picked parts of a lease's ranges; the other parts stay as they are. Returns how many
-- messages were picked.
local function change_picked(row, lease_id, sequences, change)
    check_sequences(sequences)
    local most, picked = settings.tries(row), 0
    for _, range in ipairs(ranges.of_lease(row, lease_id, sequences)) do
        ranges.erase(row, range)
        for _, part in ipairs(ranges.carve(row[C.subject], range, range.picks)) do
            if part.picked then
                picked = picked + part.count
                change(part, most)
            else
                ranges.write(row, part, most)
            end
        end
    end
    return picked
end

-- Inside a transaction: these messages of a lease are done. All of them, or none when one is not leased.
function M.apply_ack(subject, durable, lease_id, sequences)
    local row = durables.need(subject, durable, 'shared')
    local acked = change_picked(row, lease_id, sequences, function() end)
    ranges.settle(row, -acked)
    return acked
end

function M.ack(subject, durable, lease_id, sequences)
    return txn.run(function()
        return {acked = M.apply_ack(subject, durable, lease_id, sequences)}
    end)
end

-- Give messages back: they may be leased again after `delay` seconds, or go to the dead letters (those that are too
-- many for one transaction do so when they are due). `untried`: nobody has looked at them, so this was no try.
function M.nack(subject, durable, lease_id, sequences, delay, untried)
    return txn.run(function(effects)
        local row, now, dead_lettered = durables.need(subject, durable, 'shared'), clock.steady_ms(), 0
        local nacked = change_picked(row, lease_id, sequences, function(part, most)
            part.lease_id, part.granted_at = nil, now
            if untried then
                part.deliveries = part.deliveries - 1
            end
            if not untried and most and part.deliveries >= most and dead_lettered < schema.PER_TRANSACTION then
                part.due_at = now
                dead_lettered = dead_lettered
                    + give_up.some(effects, row, part, 'nacked', schema.PER_TRANSACTION - dead_lettered)
            else
                part.due_at = after_seconds(now, schema.present(delay) or 0)
                ranges.write(row, part, most)
            end
        end)
        ranges.settle(row, -dead_lettered)
        txn.touch(durables.name(row))
        return {nacked = nacked, dead_lettered = dead_lettered}
    end)
end

-- The lease of these messages, or of all that it still holds, ends `seconds` from now.
function M.extend(subject, durable, lease_id, seconds, sequences)
    return txn.run(function()
        local row, now = durables.need(subject, durable, 'shared'), clock.steady_ms()
        local due_at, extended, most = after_seconds(now, seconds), 0, settings.tries(row)
        local function prolong(range)
            range.granted_at, range.due_at = now, due_at
            ranges.write(row, range, most)
            extended = extended + range.count
        end
        if sequences ~= nil then
            change_picked(row, lease_id, sequences, prolong)
        else
            for _, range in ipairs(ranges.all_of_lease(row, lease_id)) do
                prolong(range)
            end
        end
        return {expires_at_ms = due_at, extended = extended}
    end)
end

return M
