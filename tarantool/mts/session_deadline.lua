-- When sessions end: in memory, by the steady clock. A queue of seconds says which to look at; a heartbeat only moves
-- the deadline, and the queue catches up when the old second comes. One that joins again for less time is queued again.
local clock = require('mts.clock')
local schema = require('mts.schema')

local S = schema.session
local M = {}

local until_ms = {} -- by durable, subject and session id
local queued = {} -- by the same: the second at which its place in the queue counts
local queue = {} -- {[second] = {key, ...}}
local looked_at = math.floor(clock.steady_ms() / 1000)
local loaded = false -- are the sessions of an earlier run in the queue?

local function name_of(session)
    return table.concat({session[S.durable_name], session[S.subject], session[S.session_id]}, '\0')
end

local function enqueue(second, key)
    queued[table.concat(key, '\0')] = second
    queue[second] = queue[second] or {}
    table.insert(queue[second], key)
end

function M.renew(session)
    local name = name_of(session)
    local deadline = clock.steady_ms() + session[S.ttl] * 1000
    local second = math.ceil(deadline / 1000)
    if until_ms[name] == nil or second < queued[name] then
        enqueue(second, {session[S.durable_name], session[S.subject], session[S.session_id]})
    end
    until_ms[name] = deadline
end

-- The deadline of a session; its whole time from now on when this process has not seen it yet.
function M.of(session)
    local name = name_of(session)
    if until_ms[name] == nil then
        M.renew(session)
    end
    return until_ms[name]
end

-- Up to `limit` sessions that have ended and were not dropped, as {durable_name, subject, session_id}.
function M.ended(limit)
    local now, ended = clock.steady_ms(), {}
    local current = math.floor(now / 1000)
    if not loaded then
        for _, session in box.space.session:pairs() do
            M.of(session)
        end
        loaded = true
    end
    while looked_at < current and #ended < limit do
        local second = looked_at + 1
        local key = table.remove(queue[second] or {})
        local name = key and table.concat(key, '\0')
        if key == nil then
            looked_at, queue[second] = second, nil
        elseif queued[name] == second and box.space.session:get(key) == nil then
            until_ms[name], queued[name] = nil, nil
        elseif queued[name] == second then
            local deadline = until_ms[name]
            if deadline <= now then
                table.insert(ended, key)
            end
            enqueue(math.max(math.ceil(deadline / 1000), current + 1), key)
        end
    end
    return ended
end

return M
