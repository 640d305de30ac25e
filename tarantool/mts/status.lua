-- Figures for an operator. Every one is kept or read in constant time, none is counted by a scan.
local clock = require('mts.clock')
local clocks = require('mts.compare_clocks')
local commit = require('mts.commit')
local migrations = require('mts.migrations')
local object = require('mts.object')
local hold = require('mts.retention_hold')
local rejected = require('mts.rejected')
local retention = require('mts.retention')
local schema = require('mts.schema')
local transaction_outcome = require('mts.transaction_outcome')
local ttl = require('mts.ttl')
local ttl_fiber = require('mts.ttl_fiber')
local txn = require('mts.txn')

local M = {}

local MOST_LANES = 1000 -- counted by one call, which nobody else is served beside

function M.get()
    local first = box.space.upload.index.due:min()
    local slab = box.slab.info()
    return {
        version = migrations.version(), time = clock.seconds(), watermark = commit.watermark(),
        subjects = box.space.subject:len(), rows = box.space.message:len(), uploads = box.space.upload:len(),
        trash = box.space.trash:len(), missing = box.space.missing:len(),
        next_due_at = first and first[schema.upload.due_at], rejected_events = rejected.newest(20),
        arena_used = slab.arena_used, arena_size = slab.arena_size, quota_size = slab.quota_size,
        transactions = box.space.transaction:len(), transaction_receipts = transaction_outcome.receipts(),
    }
end

-- What expires and when, who holds back what, and how deep the trash is.
function M.retention()
    local config, first = ttl.get(), box.space.trash.index.due:min()
    return txn.run(function()
        return {enabled = config.enabled, default_ttl = config.default_ttl, check_interval = config.check_interval,
            channels = config.channels, fiber_running = ttl_fiber.is_running(), clocks_agree = clocks.are_right(),
            drift_ms = clocks.drift_ms(), last_round_at = retention.last_round(), holds = hold.list(),
            trash = box.space.trash:len(), trash_due_at = first and first[schema.trash.due_at],
            trash_grace = object.grace(), time = clock.seconds()}
    end)
end

-- Subjects with their counters, in name order after `after`: up to `limit`, or fewer where they have many partitions;
-- and whether there are more. With a prefix, only those that begin with it.
function M.subjects(after, limit, prefix)
    prefix = schema.present(prefix) or ''
    local from = after < prefix and prefix or after
    return txn.run(function()
        local found, lanes, more = schema.array{}, 0, false
        for _, row in box.space.subject:pairs({from}, {iterator = after < prefix and 'GE' or 'GT'}) do
            local name = row[schema.subject.name]
            if name:sub(1, #prefix) ~= prefix then
                break
            end
            more = #found >= limit or lanes >= MOST_LANES
            if more then
                break
            end
            local entry = {subject = name, partitions = 0, created_at = row[schema.subject.created_at], messages = 0,
                bytes = 0}
            for _, lane in box.space.partition:pairs({name}, {iterator = 'EQ'}) do
                entry.partitions = entry.partitions + (lane[schema.partition.inactive] ~= true and 1 or 0)
                entry.messages = entry.messages + lane[schema.partition.messages]
                entry.bytes = entry.bytes + lane[schema.partition.bytes]
                lanes = lanes + 1
            end
            entry.partitions = math.max(entry.partitions, 1) -- the first message makes the first partition's row
            table.insert(found, entry)
        end
        return {subjects = found, more = more}
    end)
end

return M
