-- Partitions: which take messages, which keys go where, and how there come to be more of them.
local errors = require('mts.errors')
local message = require('mts.message')
local route = require('mts.route')
local schema = require('mts.schema')
local settings = require('mts.subject_settings')
local subjects = require('mts.subject')

local F, P = schema.subject, schema.partition
local M = {}

M.HASHES = 2 ^ 32

local known = {} -- by subject: its lanes and the row they belong to

-- Lanes of a subject: `active` in the order of their hashes, `is_active` and `children` by number, and whose turn
-- it is. They hold as long as the subject's row is the same tuple.
function M.lanes(subject_row)
    local name = subject_row[F.name]
    local lanes = known[name]
    if lanes and lanes.row == subject_row then
        return lanes
    end
    lanes = {row = subject_row, active = {}, is_active = {}, children = {}, turns = lanes and lanes.turns or {}}
    for _, row in box.space.partition:pairs({name}, {iterator = 'EQ'}) do
        local number, parent = row[P.partition], schema.present(row[P.parent])
        if row[P.inactive] ~= true then
            lanes.is_active[number] = true
            table.insert(lanes.active, {partition = number, from = schema.present(row[P.hash_from]) or 0,
                to = schema.present(row[P.hash_to]) or M.HASHES})
        end
        if parent then
            lanes.children[parent] = lanes.children[parent] or {}
            table.insert(lanes.children[parent], number)
        end
    end
    if #lanes.active == 0 then -- nothing was stored yet: the first message makes the row
        lanes.is_active[0], lanes.active[1] = true, {partition = 0, from = 0, to = M.HASHES}
    end
    table.sort(lanes.active, function(one, other)
        return one.from < other.from
    end)
    known[name] = lanes
    return lanes
end

function M.forget(name)
    known[name] = nil
end

local function by_hash(lanes, hash)
    local low, high = 1, #lanes.active
    while low < high do
        local middle = math.floor((low + high) / 2)
        if hash < lanes.active[middle].to then
            high = middle
        else
            low = middle + 1
        end
    end
    return lanes.active[low].partition
end

-- The partition that a message goes to, decided inside the transaction that commits it. `key` is {producer_id, group,
-- hash}: a named pair stays where it was bound, a group without a producer goes by its hash, the rest takes turns.
function M.lane_for(subject_row, key)
    if subject_row[F.partitions] == 1 then
        return 0
    end
    local lanes = M.lanes(subject_row)
    if key.producer_id ~= nil then
        return route.partition(lanes, key.producer_id, schema.present(key.group) or '')
    end
    if key.hash ~= nil then
        return by_hash(lanes, key.hash)
    end
    return route.next_in_turn(lanes, 'messages')
end

-- The row of partition 0 exists from the first message on; changes of partitions need it before.
function M.ensure_first(subject_row)
    if subject_row[F.partitions] == 1 and box.space.partition:get{subject_row[F.name], 0} == nil then
        box.space.partition:insert{subject_row[F.name], 0, 0, 0, 0, 0}
    end
end

-- Partitions by hand: up to `total` active ones, and the hashes divided evenly again over all of them. Named pairs stay
-- where they are. Inside a transaction; returns the subject's new row.
function M.grow(subject_row, total)
    local name, made = subject_row[F.name], subject_row[F.partitions]
    local lanes = M.lanes(subject_row)
    local active = #lanes.active
    if total == active then
        return subject_row
    end
    if total < active then
        errors.refuse('bad_request', ('`partitions` cannot become fewer than the %d there are; delete the subject and '
            .. 'create it again for that'):format(active), {field = 'partitions', allowed = {active,
            settings.MAX_PARTITIONS}})
    end
    M.ensure_first(subject_row)
    local numbers = {}
    for _, lane in ipairs(lanes.active) do
        table.insert(numbers, lane.partition)
    end
    for number = made, made + total - active - 1 do
        box.space.partition:insert{name, number, 0, 0, 0, 0}
        table.insert(numbers, number)
    end
    for place, number in ipairs(numbers) do
        box.space.partition:replace(schema.changed(box.space.partition:get{name, number}, {
            [P.hash_from] = math.floor((place - 1) * M.HASHES / total),
            [P.hash_to] = math.floor(place * M.HASHES / total)}))
    end
    local changes = {[F.partitions] = made + total - active}
    if made == 1 then
        local newest = box.space.producer.index.no:max()
        changes[F.pinned] = newest and newest[schema.producer.no] or 0
    end
    return subjects.change(subject_row, changes)
end

-- An inactive partition disappears with its last message. Inside the transaction that removed messages.
function M.vanish_if_empty(subject, partition)
    local row = box.space.partition:get{subject, partition}
    if row == nil or row[P.inactive] ~= true or row[P.messages] > 0 then
        return false
    end
    box.space.partition:delete{subject, partition}
    subjects.change(subjects.find(subject), {})
    return true
end

message.on_remove(function(row)
    M.vanish_if_empty(row[schema.message.subject], row[schema.message.partition])
end)

-- Children as a list: whose turn it is among them is kept in the same table.
local function numbers(children)
    return children and {unpack(children)}
end

-- All partitions, for people.
function M.describe(subject_row)
    local lanes, found = M.lanes(subject_row), schema.array{}
    for _, row in box.space.partition:pairs({subject_row[F.name]}, {iterator = 'EQ'}) do
        table.insert(found, {partition = row[P.partition], active = row[P.inactive] ~= true, parent = row[P.parent],
            children = numbers(lanes.children[row[P.partition]]), messages = row[P.messages], bytes = row[P.bytes],
            next_offset = row[P.next_offset], hash_from = schema.present(row[P.hash_from]) or 0,
            hash_to = schema.present(row[P.hash_to]) or M.HASHES, split_at = row[P.split_at]})
    end
    if #found == 0 then
        table.insert(found, {partition = 0, active = true, messages = 0, bytes = 0, next_offset = 0, hash_from = 0,
            hash_to = M.HASHES})
    end
    return found
end

return M
