-- Subjects as their owners see them: made, described, changed, deleted.
local clearing = require('mts.clearing')
local clocks = require('mts.compare_clocks')
local commit = require('mts.commit')
local durables = require('mts.durable')
local errors = require('mts.errors')
local message = require('mts.message')
local partitions = require('mts.partition')
local producer = require('mts.producer')
local quota = require('mts.quota')
local rate = require('mts.rate')
local route = require('mts.route')
local schema = require('mts.schema')
local settings = require('mts.subject_settings')
local retention_hold = require('mts.retention_hold')
local split = require('mts.split')
local subjects = require('mts.subject')
local ttl = require('mts.ttl')
local txn = require('mts.txn')

local F = schema.subject
local M = {}

local DEFAULT_GRACE = 3600

local function existing(name)
    local row = subjects.find(name)
    if row == nil then
        errors.refuse('unknown_subject', 'there is no such subject; publish to it, or make it with PUT /v1/subjects/'
            .. name, {subject = name})
    end
    return row
end

local function count_consumers(row)
    local count = 0
    for _, consumer in box.space.consumers.index.subject:pairs({row[F.name]}, {iterator = 'EQ'}) do
        count = count + (durables.is_current(consumer) and 1 or 0)
    end
    return count
end

local function describe(row)
    local lanes = partitions.describe(row)
    local messages, bytes = 0, 0
    for _, lane in ipairs(lanes) do
        messages, bytes = messages + lane.messages, bytes + lane.bytes
    end
    return {subject = row[F.name], incarnation = row[F.incarnation], created_at = row[F.created_at],
        partitions = lanes, settings = settings.of(row), messages = messages, bytes = bytes, used = quota.used(row),
        latest_sequence = message.latest(row[F.name]), consumers = count_consumers(row),
        expires_after = ttl.of(row[F.name], row)}
end

function M.get(name)
    return txn.run(function()
        return describe(existing(name))
    end)
end

-- How many partitions are wanted; nil for as many as there are.
local function wanted_partitions(row, wanted, merged)
    if schema.present(wanted.partitions) == nil then
        return nil
    end
    local total = settings.whole('partitions', wanted.partitions, 1, settings.MAX_PARTITIONS)
    local auto = merged.autopartitioning or {}
    if row ~= nil and auto.mode ~= nil and auto.mode ~= 'disabled' and total ~= #partitions.lanes(row).active then
        errors.refuse('bad_request', '`partitions` cannot be changed by hand while autopartitioning is up or paused: '
            .. 'keys would move, and the order across a split be lost', {field = 'partitions'})
    end
    return total
end

-- Make a subject, or change what `wanted` names: {partitions, codecs, quota, autopartitioning}.
function M.put(name, wanted)
    return txn.run(function(effects)
        local row = subjects.find(name)
        local merged = settings.merge(row and row[F.settings] or {}, wanted)
        local total = wanted_partitions(row, wanted, merged)
        local created = row == nil
        if created then
            row = subjects.create(name, merged)
        elseif next(wanted) ~= nil then
            row = subjects.change(row, {[F.settings] = merged})
        end
        if total then
            row = partitions.grow(row, total)
        end
        effects.altered = row
        return {subject = describe(row), created = created}
    end)
end

-- The active partitions, for a host that lays messages in their order before it stores them; null when nobody knows
-- the subject.
function M.lanes(name)
    return txn.run(function()
        local row = subjects.find(name)
        if row == nil then
            return box.NULL
        end
        local active = {}
        for _, lane in ipairs(partitions.lanes(row).active) do
            table.insert(active, {partition = lane.partition, hash_from = lane.from, hash_to = lane.to})
        end
        return active
    end)
end

local function forget(name)
    for _, module in ipairs{settings, partitions, rate, quota, commit} do
        module.forget(name)
    end
    retention_hold.set(name, nil)
end

-- Gone at once for everybody; what is left of it is cleared away, the first rows here.
function M.delete(name, put_grace)
    txn.run(function(effects)
        local row = existing(name)
        for _, lane in ipairs(box.space.partition:select({name}, {iterator = 'EQ'})) do
            box.space.partition:delete{name, lane[schema.partition.partition]}
        end
        for _, consumer in box.space.consumers.index.subject:pairs({name}, {iterator = 'EQ'}) do
            txn.touch(durables.name(consumer)) -- whoever reads for one must learn that it is gone
        end
        box.space.subject:delete(name)
        clearing.begin(name, row[F.incarnation])
        effects.forgotten = name
    end)
    return {deleted = true, purging = M.clear(schema.PER_TRANSACTION, put_grace).more}
end

txn.on_durable(function(effects)
    if effects.forgotten then
        forget(effects.forgotten)
    end
    if effects.altered then
        split.watch(effects.altered)
    end
end)

-- Forget routes and producers that were idle for long, some at a time. Returns how many went. By a clock that is not to
-- be trusted nobody was: what they stored could be stored twice, and out of order.
function M.trim()
    if not clocks.are_right() then
        return 0
    end
    return route.trim() + producer.trim(route.IDLE)
end

-- Clear away up to `limit` rows of deleted subjects.
function M.clear(limit, put_grace)
    return clearing.run(limit, put_grace or DEFAULT_GRACE)
end

return M
