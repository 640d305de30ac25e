-- Figures for an operator. Every one is kept or read in constant time, none is counted by a scan.
local clock = require('mts.clock')
local commit = require('mts.commit')
local migrations = require('mts.migrations')
local rejected = require('mts.rejected')
local schema = require('mts.schema')

local M = {}

function M.get()
    local first = box.space.upload.index.due:min()
    local slab = box.slab.info()
    return {
        version = migrations.version(), time = clock.seconds(), watermark = commit.watermark(),
        subjects = box.space.subject:len(), rows = box.space.message:len(), uploads = box.space.upload:len(),
        trash = box.space.trash:len(), next_due_at = first and first[schema.upload.due_at],
        rejected_events = rejected.newest(20), arena_used = slab.arena_used, arena_size = slab.arena_size,
        quota_size = slab.quota_size,
    }
end

-- Subjects with their counters, in name order after `after`.
function M.subjects(after, limit)
    local found = {}
    for _, row in box.space.subject:pairs({after}, {iterator = 'GT'}) do
        if #found >= limit then
            break
        end
        local entry = {subject = row[1], partitions = row[3], created_at = row[4], messages = 0, bytes = 0}
        for _, lane in box.space.partition:pairs({row[1]}, {iterator = 'EQ'}) do
            entry.messages = entry.messages + lane[schema.partition.messages]
            entry.bytes = entry.bytes + lane[schema.partition.bytes]
        end
        table.insert(found, entry)
    end
    return setmetatable(found, {__serialize = 'array'})
end

return M
