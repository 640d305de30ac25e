-- How fast partitions are written, for subjects that may split. In memory only: after a restart a partition has to be
-- over its threshold for the whole time again.
local fiber = require('fiber')

local M = {}

local LONGEST_WINDOW = 10
local watched = {} -- by subject: {threshold, stabilization, window, lanes = {by partition}}

M.now = fiber.clock -- never set back

-- Measure a subject's partitions against `threshold` bytes a second, over at least `stabilization` seconds.
function M.watch(subject, threshold, stabilization)
    local entry = watched[subject]
    if entry and entry.threshold == threshold and entry.stabilization == stabilization then
        return
    end
    watched[subject] = {threshold = threshold, stabilization = stabilization,
        window = math.min(LONGEST_WINDOW, stabilization / 3), lanes = {}}
end

function M.forget(subject)
    watched[subject] = nil
end

-- Ends a window that is over, and notes since when the rate of every window was too high.
local function roll(entry, lane, now)
    local took = now - lane.started
    if took < entry.window then
        return
    end
    if lane.bytes / took >= entry.threshold then
        lane.over_since = lane.over_since or lane.started
    else
        lane.over_since = nil
    end
    lane.started, lane.bytes = now, 0
end

-- Bytes were appended to a partition.
function M.add(subject, partition, bytes)
    local entry = watched[subject]
    if entry == nil then
        return
    end
    local now = M.now()
    local lane = entry.lanes[partition]
    if lane == nil then
        lane = {started = now, bytes = 0}
        entry.lanes[partition] = lane
    end
    roll(entry, lane, now)
    lane.bytes = lane.bytes + tonumber(bytes)
end

function M.subjects()
    local names = {}
    for name in pairs(watched) do
        table.insert(names, name)
    end
    table.sort(names)
    return names
end

-- Partitions of a subject that were written too fast for long enough, in order.
function M.overloaded(subject)
    local entry, found, now = watched[subject], {}, M.now()
    for partition, lane in pairs(entry and entry.lanes or {}) do
        roll(entry, lane, now)
        if lane.over_since and now - lane.over_since >= entry.stabilization then
            table.insert(found, partition)
        end
    end
    table.sort(found)
    return found
end

-- A partition takes nothing any more.
function M.ended(subject, partition)
    if watched[subject] then
        watched[subject].lanes[partition] = nil
    end
end

return M
