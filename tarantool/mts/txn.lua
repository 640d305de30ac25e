-- Transactions, and reads that wait for them. Tarantool shows rows to other fibers before their WAL write has ended,
-- and takes them back when it fails: so no answer leaves this module before all that it was built on is durable.
local fiber = require('fiber')

local M = {}

local last_ticket = 0 -- tickets are process-local and small: safe as table keys
local oldest = 1
local pending = {}
local rollbacks = 0
local ended = fiber.cond()
local after_commit = {}
local after_undo = {}
local current -- the effects of the transaction that runs now; nothing in it yields
local has_written = false -- it has
local is_watching = false

-- From now on, what is written is noticed. Not by `box.on_commit`: Tarantool 2.6 never frees what it is given, and some
-- million transactions fill the memory that Lua has.
function M.start()
    if is_watching then
        return
    end
    is_watching = true
    local function note()
        has_written = true
    end
    for name, space in pairs(box.space) do
        if type(name) == 'string' and (space.id > box.schema.SYSTEM_ID_MAX or name == '_sequence_data') then
            space:on_replace(note)
        end
    end
end

-- `listener(effects)` runs when a transaction has become durable, and before anybody is told. It must not yield. Logs
-- are written in the order of their commits: when it runs for one, all before it are durable, too.
function M.on_durable(listener)
    table.insert(after_commit, listener)
end

-- `listener(effects)` runs when what a transaction wrote was taken back before anybody else could see it.
function M.on_undone(listener)
    table.insert(after_undo, listener)
end

-- The effects of the transaction that runs now, or nil.
function M.current()
    return current
end

-- How many transactions failed when their log was written: what others read, or kept in memory, before may be of one
-- that never was.
function M.rollbacks()
    return rollbacks
end

local function finish(ticket)
    pending[ticket] = nil
    while oldest <= last_ticket and not pending[oldest] do
        oldest = oldest + 1
    end
    ended:broadcast()
end

local function wait_for(ticket)
    while oldest <= ticket do
        ended:wait()
    end
end

-- Inside a transaction: wake whoever waits for this subject, or durable as 'subject/durable', once it is durable.
function M.touch(name)
    current.names = current.names or {}
    current.names[name] = true
end

local function tell(listeners, effects)
    for _, listener in ipairs(listeners) do
        listener(effects)
    end
end

-- Returns the ticket up to which others must have ended, whether `fn` succeeded, its result, and whether it wrote.
local function attempt(fn, ...)
    local effects = {}
    box.begin()
    current, has_written = effects, false
    local ok, result = pcall(fn, effects, ...)
    local wrote = has_written
    current = nil
    if not ok then
        box.rollback()
        tell(after_undo, effects)
        return last_ticket, false, result, false
    end
    last_ticket = last_ticket + 1
    local ticket = last_ticket
    pending[ticket] = true
    local done, problem = pcall(box.commit)
    if done then
        done, problem = pcall(tell, after_commit, effects)
    else
        rollbacks = rollbacks + 1
    end
    finish(ticket) -- whatever happened: all who read wait for it
    if not done then
        error(problem, 0)
    end
    return ticket, true, result, wrote
end

-- Run `fn(effects, ...)` in a transaction. It must not yield. It answers, or refuses, only when what it wrote and
-- whatever it read is durable: one that wrote nothing is repeated if something it may have seen was rolled back.
-- One that wrote must not be repeated, and need not: a failed write takes all later ones with it.
function M.run(fn, ...)
    while true do
        local before = rollbacks
        local ticket, ok, result, wrote = attempt(fn, ...)
        if wrote then
            return result
        end
        wait_for(ticket)
        if rollbacks == before then
            if ok then
                return result
            end
            error(result, 0)
        end
    end
end

return M
