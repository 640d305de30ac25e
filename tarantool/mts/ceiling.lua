-- A number is never given twice (rule 28). Sequences are given up to a ceiling, and none is given before the bucket
-- knows of a ceiling at or above it: whatever happens to this server's disk, a restore begins there. A server that no
-- host has opened yet gives none at all: its bucket may be that of a server that was lost.
local errors = require('mts.errors')
local schema = require('mts.schema')
local txn = require('mts.txn')

local M = {}

local KEY = 'ceiling'
local top = 0ULL -- the last sequence that may be given
local is_closed = false -- while the bucket is ahead of this server, or an import runs
local closed_why = nil

local function stored()
    local row = box.space.state:get(KEY)
    return row and row[schema.state.value] or {top = 0, planned = 0}
end

function M.start()
    top = 0ULL + stored().top
end

-- Asked for every extent, so it is one comparison.
function M.check(sequence)
    if sequence > top or is_closed then
        local why = is_closed and closed_why
            or 'no more sequences may be given before a host has told the bucket; that takes a moment'
        errors.refuse('unavailable', why, {ceiling = top})
    end
end

function M.close(closed, why)
    is_closed = closed
    closed_why = why or 'this server is older than its bucket: `mts restore` or `mts rebuild` mends that'
end

function M.is_open()
    return top > 0 and not is_closed
end

-- `planned`: what the bucket may hold. A larger one in the bucket was written by a server that knew more than this one.
function M.get()
    return {top = top, planned = stored().planned}
end

-- Durable before the bucket is told.
function M.plan(target)
    return txn.run(function()
        local known = stored()
        if target > known.planned then
            box.space.state:replace{KEY, {top = known.top, planned = target}}
        end
        return true
    end)
end

-- The bucket holds it now. Never goes down.
function M.raise(target)
    txn.run(function()
        local known = stored()
        if target > known.top then
            box.space.state:replace{KEY, {top = target, planned = target > known.planned and target or known.planned}}
        end
    end)
    if target > top then
        top = 0ULL + target
    end
    return top
end

return M
