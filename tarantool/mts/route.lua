-- Routes: a pair <producer, group> is bound to a partition at its first use and stays there, so that its messages keep
-- their order. Bound to a partition that has split, it goes on in one of the children. Idle pairs are forgotten.
local clock = require('mts.clock')
local schema = require('mts.schema')
local txn = require('mts.txn')

local F, P, R = schema.subject, schema.producer, schema.route
local M = {}

M.IDLE = 14 * 24 * 3600
local REFRESH = 3600 -- seconds between two writes that say "still used"

-- Messages and pairs take turns of their own: one does not make the other skip a partition.
function M.next_in_turn(lanes, who)
    lanes.turns[who] = (lanes.turns[who] or 0) % #lanes.active + 1
    return lanes.active[lanes.turns[who]].partition
end

-- An active partition among the descendants of one that has split, both sides in turn. Where a whole branch has
-- vanished, nothing of what was written there is left, and any partition will do.
local function heir(lanes, partition)
    while not lanes.is_active[partition] do
        local children = lanes.children[partition]
        if children == nil then
            return M.next_in_turn(lanes, 'pairs')
        end
        children.turn = (children.turn or 0) % #children + 1
        partition = children[children.turn]
    end
    return partition
end

-- Pairs of producers that wrote while there was one partition were never bound: their messages lie in partition 0.
local function first_partition(lanes, producer_id)
    local pinned = schema.present(lanes.row[F.pinned])
    local producer = pinned and box.space.producer:get{lanes.row[F.name], producer_id}
    if producer and producer[P.no] <= pinned and producer[P.incarnation] == lanes.row[F.incarnation] then
        return heir(lanes, 0)
    end
    return M.next_in_turn(lanes, 'pairs')
end

-- The active partition of a pair, inside the transaction that commits its message.
function M.partition(lanes, producer_id, group)
    local key = {lanes.row[F.incarnation], producer_id, group}
    local row, now = box.space.route:get(key), clock.seconds()
    if row == nil then
        local partition = first_partition(lanes, producer_id)
        box.space.route:insert{key[1], producer_id, group, partition, now}
        return partition
    end
    local partition = heir(lanes, row[R.partition])
    if partition ~= row[R.partition] or now - row[R.used_at] > REFRESH then
        box.space.route:update(key, {{'=', R.partition, partition}, {'=', R.used_at, now}})
    end
    return partition
end

-- Forget routes that nobody used for 14 days, some at a time. Returns how many went.
function M.trim()
    local cutoff = clock.seconds() - M.IDLE - REFRESH
    return txn.run(function()
        local old = {}
        for _, row in box.space.route.index.used:pairs({}, {iterator = 'ALL'}) do
            if row[R.used_at] >= cutoff or #old >= schema.PER_TRANSACTION then
                break
            end
            table.insert(old, row)
        end
        for _, row in ipairs(old) do
            box.space.route:delete{row[R.incarnation], row[R.producer_id], row[R.group]}
        end
        return #old
    end)
end

return M
