-- Autopartitioning: a partition that is written too fast for too long splits in two. One transaction makes it
-- inactive and its children active, so every sequence lies on one side: the parent's at or below `split_at`, the
-- children's above. Reading in sequence order is reading the parent first.
local commit = require('mts.commit')
local partitions = require('mts.partition')
local rate = require('mts.rate')
local schema = require('mts.schema')
local settings = require('mts.subject_settings')
local subjects = require('mts.subject')
local txn = require('mts.txn')

local F, P = schema.subject, schema.partition
local M = {}

local looked = false -- were the subjects of before the start looked at?

-- Begin or end to measure a subject, as its settings say.
function M.watch(subject_row)
    local auto = settings.of(subject_row).autopartitioning
    if auto.mode == 'up' then
        rate.watch(subject_row[F.name], auto.write_speed * auto.utilization / 100, auto.stabilization)
    else
        rate.forget(subject_row[F.name])
    end
end

-- Split an active partition, inside a transaction. Returns the numbers of its children, or nil when its hashes cannot
-- be divided or there is no room for more.
function M.split(subject_row, partition, most)
    local name, first = subject_row[F.name], subject_row[F.partitions]
    local lanes = partitions.lanes(subject_row)
    if not lanes.is_active[partition] or #lanes.active >= most then
        return nil
    end
    partitions.ensure_first(subject_row)
    local row = box.space.partition:get{name, partition}
    local from, to = schema.present(row[P.hash_from]) or 0, schema.present(row[P.hash_to]) or partitions.HASHES
    if to - from < 2 then
        return nil
    end
    local middle = from + math.floor((to - from) / 2)
    box.space.partition:replace(schema.changed(row, {[P.inactive] = true, [P.hash_from] = from, [P.hash_to] = to,
        [P.split_at] = commit.given()}))
    box.space.partition:insert{name, first, 0, 0, 0, 0, box.NULL, partition, from, middle}
    box.space.partition:insert{name, first + 1, 0, 0, 0, 0, box.NULL, partition, middle, to}
    subjects.change(subject_row, {[F.partitions] = first + 2})
    partitions.vanish_if_empty(name, partition)
    return {first, first + 1}
end

local function split_overloaded(name, partition)
    return txn.run(function()
        local row = subjects.find(name)
        local auto = row and settings.of(row).autopartitioning
        if auto == nil or auto.mode ~= 'up' then
            return nil
        end
        return M.split(row, partition, auto.max_partitions)
    end)
end

-- Splits what was over its threshold long enough.
function M.tick()
    if not looked then
        looked = true
        for _, row in box.space.subject:pairs() do
            M.watch(row)
        end
    end
    local done = schema.array{}
    for _, name in ipairs(rate.subjects()) do
        local row = subjects.find(name)
        if row == nil then
            rate.forget(name)
        end
        for _, partition in ipairs(rate.overloaded(name)) do
            local children = split_overloaded(name, partition)
            if children then
                rate.ended(name, partition)
                table.insert(done, {subject = name, partition = partition, children = children})
            end
        end
    end
    return {split = done}
end

return M
