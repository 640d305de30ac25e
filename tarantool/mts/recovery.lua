-- Whether this server and its bucket are in step. State `recovery` is absent while they are; else its `state` is
--   needed     the bucket is ahead of this server: nothing is given out before a restore or rebuild
--   replaying  a restore has begun
--   importing  another installation is being taken over
--   pending    restored; what lies in the bucket and no row knows waits for the operator to adopt or discard it
local ceiling = require('mts.ceiling')
local clock = require('mts.clock')
local commit = require('mts.commit')
local journal = require('mts.journal')
local schema = require('mts.schema')
local txn = require('mts.txn')

local M = {}

local KEY = 'recovery'
local WHY = {importing = 'an import is under way: nothing is published before it has ended'}

local function stored()
    local row = box.space.state:get(KEY)
    return row and row[schema.state.value]
end

function M.start()
    local known = stored()
    ceiling.close(known ~= nil and known.state ~= 'pending', known and WHY[known.state])
end

function M.state()
    local known = stored()
    return known and known.state
end

-- Is the bucket known to be ahead? What this server would delete may be needed by what it does not know.
function M.is_needed()
    return M.state() == 'needed'
end

-- Objects with an id of before this time are not known to be orphans; nil when all are judged as usual.
function M.hold_before()
    local known = stored()
    return known and (known.state == 'pending' and known.at or clock.milliseconds())
end

-- May an object that no row points at be deleted?
function M.may_delete_orphans()
    return ceiling.is_open()
end

function M.set(state, facts)
    local value = {state = state, at = clock.milliseconds()}
    for name, fact in pairs(facts or {}) do
        value[name] = fact
    end
    txn.run(function()
        box.space.state:replace{KEY, value}
    end)
    M.start()
end

-- The bucket holds what this server never wrote. A restore that runs or waits for the operator knows more.
function M.need(reason)
    if stored() == nil then
        M.set('needed', {reason = reason})
    end
    return stored().state
end

function M.clear()
    txn.run(function()
        box.space.state:delete(KEY)
    end)
    M.start()
    return true
end

-- All that a host compares with the bucket.
function M.position()
    return txn.run(function()
        local known, limit = stored(), ceiling.get()
        return {given = commit.given(), top = limit.top, planned = limit.planned, number = journal.number(),
            recovery = known and known.state or box.NULL,
            recovery_reason = known and known.reason or box.NULL,
            journal_at = known and known.journal_at or box.NULL}
    end)
end

return M
