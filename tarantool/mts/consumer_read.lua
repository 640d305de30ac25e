-- What a durable reads next. Reading never moves a position.
local commit = require('mts.commit')
local durables = require('mts.durable')
local message = require('mts.message')
local position = require('mts.position')
local quarantine = require('mts.quarantine')
local scan = require('mts.scan')
local schema = require('mts.schema')
local sessions = require('mts.session')
local settings = require('mts.consumer_settings')
local txn = require('mts.txn')

local F = schema.consumers
local M = {}

local function page(row, source, begin, options)
    local rows, next_sequence = scan.collect(source, {limit = options.limit, whole = options.whole == true,
        filter = settings.of(row).filter, begin = begin})
    local top = commit.watermark()
    return {rows = quarantine.mark(rows), next_sequence = next_sequence or top + 1,
        latest_sequence = message.latest(row[F.subject]), watermark = top, position = row[F.last_sequence],
        fence = durables.fence(row), filter = settings.of(row).filter}
end

-- Over all partitions, each behind its own position. `after` is how far the reader got since its last ack; it is
-- void when the durable was moved since, which its `fence` tells.
local function read_all(row, options)
    local ahead, after = position.ahead(row), schema.present(options.after)
    if after and options.fence ~= nil and options.fence ~= durables.fence(row) then
        after = nil
    end
    local function begin(partition)
        local from = position.of_partition(row, ahead, partition)
        return (after and after > from and after or from) + 1
    end
    local start = begin(nil)
    return page(row, scan.source(row[F.subject], start, commit.watermark()), begin, options)
end

-- Over the partitions of a session. `after_by_partition` {{partition, sequence, fence?}, ...} is how far it got; an
-- entry with an old fence is void: somebody else has read the partition since, or the durable was moved.
local function read_held(row, session_id, options)
    local held = sessions.partitions(row, session_id)
    local begin, sources = {}, {}
    for _, lane in ipairs(held) do
        begin[lane.partition] = lane.position + 1
        for _, after in ipairs(schema.present(options.after_by_partition) or {}) do
            if after[1] == lane.partition and (after[3] == nil or after[3] == lane.fence)
                    and after[2] > lane.position then
                begin[lane.partition] = after[2] + 1
            end
        end
        table.insert(sources, scan.source(row[F.subject], begin[lane.partition], commit.watermark(), lane.partition))
    end
    local read = page(row, scan.merged(sources), function(partition) return begin[partition] end, options)
    read.partitions = held
    return read
end

-- A page of what the durable has not acked. Everything below `next_sequence` (of the session's partitions) was looked
-- at, what a filter passed over included: acking `next_sequence - 1` acks that too.
function M.read(subject, durable, options)
    if options.session_id ~= nil then
        sessions.drop_dead(subject, durable)
    end
    return txn.run(function()
        if options.session_id ~= nil then
            local row = sessions.enter(subject, durable, options.session_id, options.epoch)
            return read_held(row, options.session_id, options)
        end
        return read_all(durables.need(subject, durable, 'ordered'), options)
    end)
end

return M
