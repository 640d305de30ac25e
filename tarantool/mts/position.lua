-- Where an ordered durable stands. Everything up to `consumers.last_sequence`, the floor, is acked; partitions that are
-- ahead of it have their own position in `consumer_partition`.
local commit = require('mts.commit')
local durables = require('mts.durable')
local errors = require('mts.errors')
local extent = require('mts.extent')
local message = require('mts.message')
local scan = require('mts.scan')
local schema = require('mts.schema')
local settings = require('mts.consumer_settings')
local txn = require('mts.txn')

local C, F, P = schema.consumers, schema.consumer_partition, schema.partition
local M = {}

-- {[partition] = position} of the partitions that are ahead of the floor, or nil when none is.
function M.ahead(row)
    local ahead
    for _, entry in ipairs(box.space.consumer_partition:select(durables.key(row))) do
        if entry[F.acked] > row[C.last_sequence] then
            ahead = ahead or {}
            ahead[entry[F.partition]] = entry[F.acked]
        end
    end
    return ahead
end

function M.of_partition(row, ahead, partition)
    return ahead and ahead[partition] or row[C.last_sequence]
end

-- The first message behind `from` that fits the filter, or where to look on for it; nil when there is none.
local function first_fitting(row, from, partition, begin)
    local rows, next_sequence = scan.collect(scan.source(row[C.subject], from + 1, commit.watermark(), partition),
        {limit = 1, filter = settings.of(row).filter, begin = begin})
    return rows[1] and extent.first(rows[1]) or next_sequence
end

-- What a filter leaves out counts as read: the position behind those of it that follow, of one partition or of all. It
-- may stop before the end of them, as a page does.
local function passed(row, from, partition)
    if settings.of(row).filter == nil then
        return from
    end
    local ahead, top = M.ahead(row), commit.watermark()
    local first = first_fitting(row, from, partition, function(lane)
        local own = M.of_partition(row, ahead, lane)
        return (own > from and own or from) + 1
    end)
    return first and first - 1 or (top > from and top or from)
end

-- Is all between two positions left out by the filter, so that who has read up to the first stands at the second?
function M.is_passed(row, from, position, partition)
    if from > position or settings.of(row).filter == nil then
        return from == position
    end
    local first = first_fitting(row, from, partition, function() return from + 1 end)
    return first == nil or first > position
end

-- Refuses a sequence that no reader can have read.
function M.check_end(sequence)
    if sequence > commit.watermark() then
        errors.refuse('beyond_end', 'nothing was published up to there yet; `watermark` is the last sequence',
            {watermark = commit.watermark()})
    end
end

-- Rows that say no more than the floor does go; those that name a reader stay.
local function tidy(row)
    for _, entry in ipairs(box.space.consumer_partition:select(durables.key(row))) do
        if entry[F.session_id] == nil and entry[F.acked] <= row[C.last_sequence] then
            box.space.consumer_partition:delete{row[C.durable_name], row[C.subject], entry[F.partition]}
        end
    end
end

local function raise_floor(row, floor)
    if floor > row[C.last_sequence] then
        row = durables.change(row, {{'=', C.last_sequence, floor}})
    end
    tidy(row)
    return row
end

-- Everything up to `sequence` is read, in all partitions, and what the filter leaves out behind it. Never moves back.
function M.ack(row, sequence)
    M.check_end(sequence)
    local floor = row[C.last_sequence]
    local reached = passed(row, sequence > floor and sequence or floor)
    return reached > floor and raise_floor(row, reached) or row
end

-- The floor follows the partitions: the least position of those with something left to read, else the watermark.
local function settle(row)
    local subject, ahead, floor = row[C.subject], M.ahead(row), nil
    for _, lane in ipairs(box.space.partition:select({subject})) do
        local position = M.of_partition(row, ahead, lane[P.partition])
        local first = message.first_behind(subject, lane[P.partition], position)
        local has_lag = first and first[schema.message.sequence] <= commit.watermark()
        if has_lag and (floor == nil or position < floor) then
            floor = position
        end
    end
    return raise_floor(row, floor or commit.watermark())
end

-- Readers have read single partitions {{partition, sequence}, ...}; each has a row in `consumer_partition`.
function M.ack_partitions(row, acks)
    for _, ack in ipairs(acks) do
        M.check_end(ack[2])
        local key = {row[C.durable_name], row[C.subject], ack[1]}
        local acked = box.space.consumer_partition:get(key)[F.acked]
        local reached = passed(row, ack[2] > acked and ack[2] or acked, ack[1])
        if reached > acked then
            box.space.consumer_partition:update(key, {{'=', F.acked, reached}})
        end
    end
    return settle(row)
end

-- The position from which `sequence` is the next to be read; not before the subject's beginning.
function M.before(row, sequence)
    local position = sequence > 0 and sequence - 1 or 0
    M.check_end(position)
    local first = message.first_sequence(row[C.subject]) or 0
    return position + 1 < first and first - 1 or position
end

-- Go to a position in all partitions, forward or back; whoever reads one must start again there.
function M.seek(row, position)
    row = durables.next_fence(durables.change(row, {{'=', C.last_sequence, position}}))
    for _, entry in ipairs(box.space.consumer_partition:select(durables.key(row))) do
        local fence
        row, fence = durables.next_fence(row)
        M.assign(row, entry[F.partition], schema.present(entry[F.session_id]), 0, fence)
    end
    tidy(row)
    txn.touch(durables.name(row))
    return row
end

-- Give a partition to a reader, or to none.
function M.assign(row, partition, session_id, acked, fence)
    txn.touch(durables.name(row))
    box.space.consumer_partition:replace{row[C.durable_name], row[C.subject], partition, acked,
        session_id or box.NULL, fence}
end

-- Has everything of this partition been acked or left out that it has, durable or not?
local function is_read(row, ahead, partition)
    local own = passed(row, M.of_partition(row, ahead, partition), partition)
    return message.first_behind(row[C.subject], partition, own) == nil
end

-- The partitions that may be read now, in order: a split one until its end, its children only after that. One that
-- vanished counts as read. Second, whether that stays so until the subject's row changes or the durable is moved.
function M.readable(row)
    local ahead, subject, readable = M.ahead(row), row[C.subject], {}
    local lanes = box.space.partition:select({subject})
    local lasts = #lanes > 0 -- the first message makes the first one
    local function ancestors_read(lane)
        local parent = schema.present(lane[P.parent])
        local above = parent ~= nil and box.space.partition:get{subject, parent}
        return not above or (is_read(row, ahead, parent) and ancestors_read(above))
    end
    for _, lane in ipairs(lanes) do
        local partition = lane[P.partition]
        local ended = lane[P.inactive] == true and is_read(row, ahead, partition)
        if not ended and ancestors_read(lane) then
            table.insert(readable, partition)
        end
        lasts = lasts and (ended or lane[P.inactive] ~= true)
    end
    return readable, lasts
end

return M
