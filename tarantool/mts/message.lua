-- Reading: a row is an extent of `count` messages, keyed by its last sequence. Readers see nothing above the
-- watermark, so what they have read up to never gets a new message below; and nothing of a deleted subject.
local commit = require('mts.commit')
local digest = require('digest')
local extent = require('mts.extent')
local filter = require('mts.filter')
local msgpack = require('msgpack')
local object = require('mts.object')
local quarantine = require('mts.quarantine')
local scan = require('mts.scan')
local schema = require('mts.schema')
local subjects = require('mts.subject')

local F, P = schema.message, schema.partition
local M = {}

local watermark = commit.watermark

-- The row that holds a sequence, and the message's index in it (from 0).
function M.locate(sequence)
    local row = box.space.message.index.primary:select({sequence}, {iterator = 'GE', limit = 1})[1]
    if row == nil or sequence < extent.first(row) then
        return nil
    end
    return row, tonumber(sequence - extent.first(row))
end

-- Partition and offset of a message.
function M.place(row, index)
    return row[F.partition], row[F.offset] - row[F.count] + 1 + index
end

-- Does the message with this sequence live in this object?
function M.points_at(sequence, object_name)
    local row = sequence ~= nil and M.locate(sequence)
    return row and row[F.object_name] == object_name or false
end

-- Where the subject's incarnation begins, or nil when there is no such subject: what lies below is of a deleted one.
function M.first_sequence(subject)
    local row = subjects.find(subject)
    return row and (schema.present(row[schema.subject.first_sequence]) or 0)
end

function M.latest(subject)
    local first = M.first_sequence(subject)
    local row = first and box.space.message.index.subject_sequence:select({subject, watermark()},
        {iterator = 'LE', limit = 1})[1]
    if row == nil or row[F.subject] ~= subject or row[F.sequence] < first then
        return 0
    end
    return row[F.sequence]
end

-- Up to `limit` messages from `start` on, as rows; of one partition, or matching a filter. With `whole`, extents are
-- not cut at the limit. `next_sequence` is where to go on: behind the last one looked at, or behind the watermark
-- when all was read.
function M.page(subject, start, limit, partition, whole, conditions)
    local top, first = watermark(), M.first_sequence(subject)
    conditions = filter.check(conditions)
    local rows, next_sequence = schema.array{}, nil
    if first then
        local begin = start > first and start or first
        rows, next_sequence = scan.collect(scan.source(subject, begin, top, schema.present(partition)),
            {limit = limit, whole = whole == true, filter = conditions, begin = function() return begin end})
    end
    return {rows = quarantine.mark(rows), next_sequence = next_sequence or top + 1,
        latest_sequence = M.latest(subject), watermark = top}
end

-- A page of whole extents, packed: msgpack in base64, since what is called over the wire is text. Who reads a million
-- rows unpacks them in one go, at a third of the cost of a connector that looks at each value as it comes.
function M.packed_page(subject, start, limit, partition)
    local page = M.page(subject, start, limit, partition, true)
    page.rows = digest.base64_encode(msgpack.encode(page.rows), {nowrap = true})
    return page
end

-- One message as a row of its own, or nil.
function M.get(sequence)
    if sequence > watermark() then
        return nil
    end
    local row, index = M.locate(sequence)
    local first = row and M.first_sequence(row[F.subject])
    if first == nil or sequence < first then
        return nil
    end
    return quarantine.mark{extent.slice(row, index, 1)}[1]
end

-- The extent of a partition that holds its first message behind a position, durable or not; or nil.
function M.first_behind(subject, partition, position)
    local row = box.space.message.index.subject_partition:select({subject, partition, position + 1},
        {iterator = 'GE', limit = 1})[1]
    if row == nil or row[F.subject] ~= subject or row[F.partition] ~= partition then
        return nil
    end
    return row
end

-- How many messages of a partition stand behind a position, by offsets: no counting. Messages removed from the middle
-- (dead letters one by one) leave holes in the offsets: then it may say too many, never more than the partition has,
-- and it is right again for a position before or behind the holes.
function M.lane_count_after(lane, position)
    local subject, partition, top = lane[P.subject], lane[P.partition], watermark()
    local first = M.first_behind(subject, partition, position)
    if first == nil or first[F.sequence] > top then
        return 0
    end
    local last = box.space.message.index.subject_partition:select({subject, partition, top},
        {iterator = 'LE', limit = 1})[1]
    local begin = extent.first(first)
    local skipped = position >= begin and tonumber(position - begin) + 1 or 0
    local by_offset = last[F.offset] - first[F.offset] + first[F.count]
    local not_durable = lane[P.next_offset] - 1 - last[F.offset]
    return math.min(tonumber(by_offset), tonumber(lane[P.messages] - not_durable)) - skipped
end

-- How many messages of a subject stand behind a position; `ahead` {[partition] = position} where one is further.
function M.count_after(subject, position, ahead)
    local first, total = M.first_sequence(subject), 0
    if first == nil then
        return 0
    end
    for _, lane in ipairs(box.space.partition:select({subject})) do
        local own = ahead and ahead[lane[P.partition]]
        local from = own and own > position and own or position
        total = total + M.lane_count_after(lane, from + 1 < first and first - 1 or from)
    end
    return total
end

-- The subject's first message behind a sequence, or nil.
function M.after(subject, sequence)
    local row = box.space.message.index.subject_sequence:select({subject, sequence + 1},
        {iterator = 'GE', limit = 1})[1]
    if row == nil or row[F.subject] ~= subject then
        return nil
    end
    local first = extent.first(row)
    return first > sequence and first or sequence + 1
end

-- How many messages of the subject stand in `from` .. `upto - 1`, and the last of them. Walks them.
function M.count_between(subject, from, upto)
    local count, last = 0, nil
    for _, row in box.space.message.index.subject_sequence:pairs({subject, from}, {iterator = 'GE'}) do
        local first = extent.first(row)
        if row[F.subject] ~= subject or first >= upto then
            break
        end
        if first < from then
            first = from
        end
        last = row[F.sequence] < upto and row[F.sequence] or upto - 1
        count = count + tonumber(last - first) + 1
    end
    return count, last
end

-- The first sequence whose message was stored at `seconds` or later; behind the watermark when there is none. Time
-- never steps back within a subject, so halving finds it.
function M.sequence_at(subject, seconds)
    local index = box.space.message.index.subject_sequence
    local first, top = M.first_sequence(subject), watermark()
    local function row_at(sequence)
        local row = index:select({subject, sequence}, {iterator = 'GE', limit = 1})[1]
        return row and row[F.subject] == subject and row[F.sequence] <= top and row or nil
    end
    local low, high, found = 0ULL + (first or 0), top + 1, top + 1
    while first and low < high do
        local middle = low + (high - low) / 2
        local row = row_at(middle)
        if row == nil then
            high = middle
        elseif row[F.create_at] >= seconds then
            found = extent.first(row)
            high = found < middle and found or middle
        else
            low = row[F.sequence] + 1ULL
        end
    end
    return found
end

local removed = {}

-- `listener(row)` runs in the transaction that removes an extent.
function M.on_remove(listener)
    table.insert(removed, listener)
end

-- Messages `gone` of an extent are no longer there, only `parts` of it.
local function settle(row, gone, parts)
    box.space.message:delete(row[F.sequence])
    for _, part in ipairs(parts) do
        box.space.message:insert(part)
    end
    quarantine.moved(row, parts)
    local unverified = schema.present(row[F.unverified])
    box.space.partition:update({row[F.subject], row[F.partition]}, {
        {'-', P.messages, gone[F.count]}, {'-', P.bytes, gone[F.size]},
        {'-', P.unverified, unverified and gone[F.count] or 0}})
end

local function tell(gone)
    for _, listener in ipairs(removed) do
        listener(gone)
    end
end

-- Remove an extent: its row, its share of the counters, its hold on the payload. Inside a transaction. What was
-- published without a ticket has a payload that is not ours to delete. Returns whether nothing points at the payload
-- any more; it goes after `grace` seconds, by default as long as URLs and backups may need it.
function M.remove(row, reason, grace)
    settle(row, row, {})
    local is_last = schema.present(row[F.unverified]) or object.release(row[F.object_name], reason, grace)
    tell(row)
    return is_last
end

-- Remove an extent, but for its payload, which is the caller's to care for. Inside a transaction.
function M.drop(row)
    settle(row, row, {})
    tell(row)
end

-- Cut one message out of an extent; its neighbours stay where they are, and so does the payload. Inside a
-- transaction. Returns the message as a row, and how many rows are left of the extent.
function M.cut_out(row, index)
    local parts, gone = {}, row
    if row[F.count] > 1 then
        local cut, behind = extent.cutter(row:totable()), tonumber(row[F.count]) - index - 1
        if index > 0 then
            table.insert(parts, cut(0, index))
        end
        gone = cut(index, 1)
        if behind > 0 then
            table.insert(parts, cut(index + 1, behind))
        end
    end
    settle(row, gone, parts)
    tell(gone)
    return gone, #parts
end

return M
