-- Walks over rows, some at a time, that end with counts which hold for one moment: whatever changes behind the walk
-- while it goes on is counted in.
local fiber = require('fiber')
local schema = require('mts.schema')
local txn = require('mts.txn')

local F = schema.message
local M = {}

local CHUNK = 1000
local walks = {} -- those that run now

txn.on_undone(function(effects)
    for walk in pairs(walks) do
        for at = #walk.changes, 1, -1 do
            if walk.changes[at].effects == effects then
                table.remove(walk.changes, at)
            end
        end
    end
end)

local function note(walk, row, sign)
    if row ~= nil and row[F.sequence] <= walk.at and walk.wants(row) then
        table.insert(walk.changes, {effects = txn.current(), row = row, sign = sign})
    end
end

-- Count the next rows; false when there are more.
local function step(walk)
    for _, change in ipairs(walk.changes) do
        walk.count(change.row, change.sign)
    end
    walk.changes = {}
    local seen = 0
    for _, row in walk.index:pairs(walk.key(walk.at), {iterator = 'GT'}) do
        if walk.ends(row) then
            return true
        end
        if walk.wants(row) then
            walk.count(row, 1)
        end
        walk.at, seen = row[F.sequence], seen + 1
        if seen == CHUNK then
            return false
        end
    end
    return true
end

local function run(walk, finish)
    local before = txn.rollbacks()
    while not step(walk) do
        fiber.yield()
    end
    return txn.run(function(effects)
        while not step(walk) do end
        if txn.rollbacks() ~= before then -- rows were counted that are not there
            return nil
        end
        return {result = finish(effects)}
    end)
end

-- Count rows of `index` from its beginning, or that of `prefix`, and then `finish(effects)` in the same moment, in a
-- transaction. `begin()` gives {wants = function(row), count = function(row, sign)}, from scratch: a walk begins again
-- when the disk failed under it.
function M.run(index, prefix, begin, finish)
    while true do
        local counting = begin()
        local walk = {at = 0ULL, changes = {}, index = index, wants = counting.wants, count = counting.count}
        function walk.key(at)
            local key = {unpack(prefix)}
            table.insert(key, at)
            return key
        end
        function walk.ends(row)
            for place, value in ipairs(prefix) do
                if row[index.parts[place].fieldno] ~= value then
                    return true
                end
            end
            return false
        end
        walks[walk] = true
        local trigger = box.space.message:on_replace(function(old, new)
            note(walk, old, -1)
            note(walk, new, 1)
        end)
        local ok, ended = pcall(run, walk, finish)
        box.space.message:on_replace(nil, trigger)
        walks[walk] = nil
        if not ok then
            error(ended, 0)
        end
        if ended ~= nil then
            return ended.result
        end
    end
end

return M
