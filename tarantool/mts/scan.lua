-- Walks over extents in sequence order, for pages and leases: where to begin, when to stop, what to leave out.
local extent = require('mts.extent')
local filter = require('mts.filter')
local schema = require('mts.schema')

local F = schema.message
local M = {}

-- A walk may find little for a long time, with a filter, or where partitions were read further than others: it ends
-- after so many messages looked at, or rows that gave nothing, and the caller goes on from there.
M.MOST_MESSAGES = 5000
M.MOST_ROWS = 1000

-- A function that gives the next extent of a subject with messages from `start` on, up to `top`; of one partition
-- when it is given.
function M.source(subject, start, top, partition)
    local index, key = box.space.message.index.subject_sequence, {subject, start}
    if partition ~= nil then
        index, key = box.space.message.index.subject_partition, {subject, partition, start}
    end
    local generate, param, state = index:pairs(key, {iterator = 'GE'})
    return function()
        local row
        state, row = generate(param, state)
        if state == nil or row[F.subject] ~= subject or row[F.sequence] > top
                or (partition ~= nil and row[F.partition] ~= partition) then
            return nil
        end
        return row
    end
end

-- Several sources as one, in sequence order.
function M.merged(sources)
    local heads = {}
    for i, source in ipairs(sources) do
        heads[i] = source() or false
    end
    return function()
        local least
        for i, head in ipairs(heads) do
            if head and (least == nil or head[F.sequence] < heads[least][F.sequence]) then
                least = i
            end
        end
        if least == nil then
            return nil
        end
        local row = heads[least]
        heads[least] = sources[least]() or false
        return row
    end
end

local function take(rows, row, from, count, options)
    if options.filter == nil then
        local taken = options.whole and count or math.min(count, options.left)
        table.insert(rows, extent.slice(row, from, taken))
        options.left = options.left - taken
        return taken
    end
    local considered = math.min(count, options.messages)
    local decoded = row:totable()
    local runs, seen = filter.runs(options.filter, decoded, from, considered, options.left)
    local cut = extent.cutter(decoded)
    for _, run in ipairs(runs) do
        table.insert(rows, cut(run[1], run[2]))
        options.left = options.left - run[2]
    end
    options.messages = options.messages - seen
    return seen
end

-- Up to `limit` messages of the source, as rows, and where to go on: nil when the source has ended. Options: `limit`,
-- `whole` (extents are not cut at the limit), `filter`, and `begin(partition)`, the least sequence wanted of one.
-- Third, whether anything was looked at.
function M.collect(source, options)
    options = {left = options.limit, whole = options.whole, filter = options.filter, begin = options.begin,
        messages = M.MOST_MESSAGES, rows = M.MOST_ROWS}
    local rows, reached = schema.array{}, nil
    while true do
        local row = source()
        if row == nil then
            return rows, nil, reached ~= nil
        end
        if options.left <= 0 or options.messages <= 0 or options.rows <= 0 then
            return rows, reached and reached + 1 or extent.first(row), reached ~= nil
        end
        local found_before = #rows
        local first, begin = extent.first(row), options.begin(row[F.partition])
        local from = begin > first and tonumber(begin - first) or 0
        local count = row[F.count] - from
        if count > 0 then
            local seen = take(rows, row, from, count, options)
            if seen < count then
                return rows, first + from + seen, true
            end
        end
        reached = row[F.sequence]
        if #rows == found_before then
            options.rows = options.rows - 1
        end
    end
end

return M
