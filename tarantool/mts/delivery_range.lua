-- Ranges of a shared durable: messages of its subject between two sequences that were handed out and are not acked.
-- Everything here runs inside a transaction. `first` and `last` are sequences of messages, so ranges are disjoint
-- and in order, and the first one says how far everything is acked.
local commit = require('mts.commit')
local durables = require('mts.durable')
local errors = require('mts.errors')
local extent = require('mts.extent')
local message = require('mts.message')
local scan = require('mts.scan')
local schema = require('mts.schema')

local C, D, F = schema.consumers, schema.delivery, schema.message
local M = {}

-- A range as a table, to be changed and written again.
function M.open(row)
    return {first = row[D.first], last = row[D.last], count = tonumber(row[D.count]),
        deliveries = tonumber(row[D.deliveries]), lease_id = schema.present(row[D.lease_id]),
        granted_at = row[D.granted_at], due_at = row[D.due_at]}
end

-- The same facts about a part of a range.
local function part(range, first, last, count)
    return {first = first, last = last, count = count, deliveries = range.deliveries, lease_id = range.lease_id,
        granted_at = range.granted_at, due_at = range.due_at}
end

-- `max_deliver` says whether this is the last try, which ends in the dead-letter subject; nil: there is no last one.
function M.write(consumer_row, range, max_deliver)
    local is_last = max_deliver ~= nil and range.deliveries >= max_deliver
    box.space.delivery:replace{consumer_row[C.durable_name], consumer_row[C.subject], range.last, range.first,
        range.count, range.deliveries, range.lease_id or box.NULL, range.granted_at, range.due_at,
        is_last and range.due_at or box.NULL}
end

function M.erase(consumer_row, range)
    box.space.delivery:delete{consumer_row[C.durable_name], consumer_row[C.subject], range.last}
end

-- The range that holds a sequence, or nil.
local function find(consumer_row, sequence)
    local row = box.space.delivery:select({consumer_row[C.durable_name], consumer_row[C.subject], sequence},
        {iterator = 'GE', limit = 1})[1]
    if row == nil or row[D.durable_name] ~= consumer_row[C.durable_name] or row[D.subject] ~= consumer_row[C.subject]
            or row[D.first] > sequence then
        return nil
    end
    return M.open(row)
end

-- Up to `limit` messages of a range from its start, as rows.
local function rows_of(subject, range, limit)
    return (scan.collect(scan.source(subject, range.first, commit.watermark()), {limit = math.min(limit, range.count),
        begin = function() return range.first end}))
end

-- The first `count` messages of a range as a range of their own, the rest, and the rows of the first.
function M.split(subject, range, count)
    local rows = rows_of(subject, range, count)
    if count >= range.count then
        return range, nil, rows
    end
    local last = rows[#rows][F.sequence]
    return part(range, range.first, last, count),
        part(range, message.after(subject, last), range.last, range.count - count), rows
end

-- Cut a range at `picks`, sequences of messages in it, in order: parts, those made of picks with `picked` set.
function M.carve(subject, range, picks)
    local parts, at, left = {}, range.first, range.count
    for _, pick in ipairs(picks) do
        if at < pick then
            local count, last = message.count_between(subject, at, pick)
            table.insert(parts, part(range, at, last, count))
            left = left - count
        end
        local before = parts[#parts]
        if before and before.picked then
            before.last, before.count = pick, before.count + 1
        else
            table.insert(parts, part(range, pick, pick, 1))
            parts[#parts].picked = true
        end
        left = left - 1
        at = left > 0 and message.after(subject, pick) or nil
    end
    if left > 0 then
        table.insert(parts, part(range, at, range.last, left))
    end
    return parts
end

-- Join neighbours that differ in nothing: ranges in order, with no message of the subject between them.
function M.join(subject, ranges)
    local joined = {}
    for _, range in ipairs(ranges) do
        local before = joined[#joined]
        if before and before.deliveries == range.deliveries and message.after(subject, before.last) == range.first then
            before.last, before.count = range.last, before.count + range.count
        else
            table.insert(joined, range)
        end
    end
    return joined
end

local function lost(lease_id, sequence)
    errors.refuse('lease_lost', 'not leased by this lease (any more); another worker may have it: drop it',
        {lease_id = lease_id, sequence = sequence})
end

-- The ranges of a lease that hold these sequences, each with its `picks`; all of them, or a refusal.
function M.of_lease(consumer_row, lease_id, sequences)
    local sorted, found = {}, {}
    for _, sequence in ipairs(sequences) do
        table.insert(sorted, sequence)
    end
    table.sort(sorted, function(a, b) return a < b end)
    local range, before
    for _, sequence in ipairs(sorted) do
        if before == nil or sequence ~= before then
            if range == nil or sequence > range.last then
                range = find(consumer_row, sequence)
                if range == nil or range.lease_id == nil or range.lease_id ~= lease_id then
                    lost(lease_id, sequence)
                end
                range.picks = {}
                table.insert(found, range)
            end
            local row = message.locate(sequence)
            if sequence < range.first or row == nil or row[F.subject] ~= consumer_row[C.subject] then
                lost(lease_id, sequence)
            end
            table.insert(range.picks, sequence)
        end
        before = sequence
    end
    return found
end

-- All ranges of a lease.
function M.all_of_lease(consumer_row, lease_id)
    local found = {}
    for _, row in box.space.delivery.index.lease:pairs({lease_id}, {iterator = 'EQ'}) do
        if row[D.durable_name] == consumer_row[C.durable_name] and row[D.subject] == consumer_row[C.subject] then
            table.insert(found, M.open(row))
        end
    end
    if #found == 0 then
        lost(lease_id)
    end
    return found
end

-- The durable's row after ranges changed: `outstanding` by so many, the floor before the first range.
function M.settle(consumer_row, change, next_sequence)
    next_sequence = next_sequence or consumer_row[C.next_sequence]
    local first = box.space.delivery:select(durables.key(consumer_row), {iterator = 'EQ', limit = 1})[1]
    local floor = (first and first[D.first] or next_sequence) - 1
    return durables.change(consumer_row, {{'=', C.outstanding, consumer_row[C.outstanding] + change},
        {'=', C.last_sequence, floor}, {'=', C.next_sequence, next_sequence}})
end

-- Write a part of a range as its row said, last try or not.
local function restore(consumer_row, entry, range)
    M.write(consumer_row, range, entry[D.last_try_at] ~= nil and 0 or nil)
end

-- An extent is removed: no range may hold its messages any more.
local function forget(consumer_row, row)
    local first, last = extent.first(row), row[F.sequence]
    local gone = 0
    while true do
        local entry = box.space.delivery:select({consumer_row[C.durable_name], consumer_row[C.subject], first},
            {iterator = 'GE', limit = 1})[1]
        if entry == nil or entry[D.durable_name] ~= consumer_row[C.durable_name]
                or entry[D.subject] ~= consumer_row[C.subject] or entry[D.first] > last then
            break
        end
        local range = M.open(entry)
        local from, upto = range.first > first and range.first or first, range.last < last and range.last or last
        local count = tonumber(upto - from) + 1
        M.erase(consumer_row, range)
        if range.first < from then
            local before, before_last = message.count_between(consumer_row[C.subject], range.first, from)
            restore(consumer_row, entry, part(range, range.first, before_last, before))
            range.count = range.count - before
        end
        if range.count > count then
            restore(consumer_row, entry, part(range, message.after(consumer_row[C.subject], upto), range.last,
                range.count - count))
        end
        gone = gone + count
        first = upto + 1
        if first > last then
            break
        end
    end
    if gone > 0 then
        M.settle(consumer_row, -gone)
    end
end

-- Expiry removes lease state in the same transaction.
message.on_remove(function(row)
    for _, consumer_row in ipairs(box.space.consumers.index.subject:select(row[F.subject])) do
        if consumer_row[C.mode] == 'shared' and consumer_row[C.outstanding] > 0 then
            forget(consumer_row, row)
        end
    end
end)

return M
