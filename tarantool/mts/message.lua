-- Reading: a row is an extent of `count` messages, keyed by its last sequence. Readers see nothing above the
-- watermark, so what they have read up to never gets a new message below.
local commit = require('mts.commit')
local schema = require('mts.schema')

local F = schema.message
local M = {}

local watermark = commit.watermark

local function array(values)
    return setmetatable(values, {__serialize = 'array'})
end

-- The row that holds a sequence, and the message's index in it (from 0).
function M.locate(sequence)
    local row = box.space.message.index.primary:select({sequence}, {iterator = 'GE', limit = 1})[1]
    if row == nil then
        return nil
    end
    local first = row[F.sequence] - row[F.count] + 1
    if sequence < first then
        return nil
    end
    return row, tonumber(sequence - first)
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

local function own_part(own, from, count)
    local part = {}
    for _, entry in ipairs(own) do
        if entry[1] >= from and entry[1] < from + count then
            table.insert(part, {entry[1] - from, entry[2], entry[3]})
        end
    end
    return #part > 0 and part or box.NULL
end

-- `count` messages of an extent from index `from` on, as a row of their own.
function M.slice(row, from, count)
    local total = row[F.count]
    if from == 0 and count == total then
        return row
    end
    local sizes = row[F.sizes]
    local byte_from, size, part = row[F.byte_from], 0, {}
    for i = 1, from + count do
        if i <= from then
            byte_from = byte_from + sizes[i] + schema.FRAME_PREFIX
        else
            size = size + sizes[i]
            table.insert(part, sizes[i])
        end
    end
    local behind = total - from - count
    return {row[F.sequence] - behind, row[F.headers], row[F.object_name], row[F.subject], row[F.create_at],
        row[F.partition], row[F.offset] - behind, count, size, byte_from, count > 1 and part or box.NULL,
        own_part(schema.present(row[F.own]) or {}, from, count), row[F.content_type], row[F.sha256],
        row[F.codec], row[F.unverified]}
end

function M.latest(subject)
    local row = box.space.message.index.subject_sequence:select({subject, watermark()},
        {iterator = 'LE', limit = 1})[1]
    if row == nil or row[F.subject] ~= subject then
        return 0
    end
    return row[F.sequence]
end

local function rows_from(subject, start, partition)
    if partition == nil then
        return box.space.message.index.subject_sequence:pairs({subject, start}, {iterator = 'GE'})
    end
    return box.space.message.index.subject_partition:pairs({subject, partition, start}, {iterator = 'GE'})
end

-- Up to `limit` messages from `start` on, as rows. With `whole`, extents are not cut at the limit.
-- `next_sequence` is where to go on: behind the last one, or behind the watermark when all was read.
function M.page(subject, start, limit, partition, whole)
    local top = watermark()
    local rows, left, next_sequence = array{}, limit, nil
    for _, row in rows_from(subject, start, partition) do
        if row[F.subject] ~= subject or row[F.sequence] > top
                or (partition ~= nil and row[F.partition] ~= partition) then
            break
        end
        if left <= 0 then
            next_sequence = rows[#rows][F.sequence] + 1
            break
        end
        local first = row[F.sequence] - row[F.count] + 1
        local from = start > first and tonumber(start - first) or 0
        local count = row[F.count] - from
        if count > left and not whole then
            row = M.slice(row, from, left)
            next_sequence = row[F.sequence] + 1
        else
            row = M.slice(row, from, count)
        end
        table.insert(rows, row)
        left = left - count
        if next_sequence then
            break
        end
    end
    if next_sequence == nil then
        next_sequence = top + 1
    end
    return {rows = rows, next_sequence = next_sequence, latest_sequence = M.latest(subject), watermark = top}
end

-- One message as a row of its own, or nil.
function M.get(sequence)
    if sequence > watermark() then
        return nil
    end
    local row, index = M.locate(sequence)
    return row and M.slice(row, index, 1)
end

-- How many messages of a subject stand behind a position, by offsets: no counting.
function M.count_after(subject, position)
    local top, total = watermark(), 0
    for _, lane in box.space.partition:pairs({subject}, {iterator = 'EQ'}) do
        local partition = lane[schema.partition.partition]
        local index = box.space.message.index.subject_partition
        local first = index:select({subject, partition, position + 1}, {iterator = 'GE', limit = 1})[1]
        local last = index:select({subject, partition, top}, {iterator = 'LE', limit = 1})[1]
        if first and last and first[F.subject] == subject and first[F.partition] == partition
                and first[F.sequence] <= top then
            local begin = first[F.sequence] - first[F.count] + 1
            local skipped = position >= begin and position - begin + 1 or 0
            total = total + (last[F.offset] - (first[F.offset] - first[F.count] + 1) + 1) - skipped
        end
    end
    return total
end

return M
