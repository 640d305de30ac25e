-- The specification's background fiber: expires what is due, again and again, while TTL is enabled.
local fiber = require('fiber')
local log = require('log')
local retention = require('mts.retention')
local ttl = require('mts.ttl')

local M = {}

M.STOP_SECONDS = 5 -- for a round to end

local running -- {fiber, wake, ended} of the one that works

local function round()
    local ok, messages, clocks_differ = pcall(retention.run)
    if not ok then
        log.error('expiry failed and is tried again: %s', tostring(messages))
    elseif clocks_differ then
        log.warn('nothing expires: the clocks of Tarantool and the object store differ, or were not compared yet')
    elseif messages > 0 then
        log.info('%d messages expired', messages)
    end
end

local function work(own)
    while running == own and ttl.get().enabled do
        own.wake:wait(ttl.get().check_interval)
        if running == own and ttl.get().enabled and not box.info.ro then
            round()
        end
    end
end

function M.is_running()
    return running ~= nil and not running.is_ended
end

-- True when it runs from now on; false when it did, or when TTL is disabled.
function M.start()
    if not ttl.get().enabled or M.is_running() then
        return false
    end
    local own = {wake = fiber.cond(), ended = fiber.cond(), is_ended = false}
    running = own
    own.fiber = fiber.create(function()
        fiber.name('ttl_cleanup')
        local ok, problem = pcall(work, own)
        if not ok then
            log.warn('the TTL fiber ended: %s', tostring(problem))
        end
        own.is_ended = true
        own.ended:broadcast()
    end)
    return true
end

-- End the one that runs, and wait for its end.
local function stop()
    local own = running
    if own == nil or own.is_ended then
        return
    end
    running = nil
    own.wake:broadcast()
    local deadline = fiber.clock() + M.STOP_SECONDS
    while not own.is_ended and fiber.clock() < deadline do
        own.ended:wait(deadline - fiber.clock())
    end
    if not own.is_ended then
        pcall(own.fiber.cancel, own.fiber)
    end
end

-- Change the configuration; the fiber begins anew with it.
function M.configure(config)
    ttl.configure(config)
    stop()
    M.start()
    return true
end

-- A host's settings, applied as `ttl.apply` says. True when they count.
function M.apply(config, given)
    local applied = ttl.apply(config, given)
    if applied.changed then
        stop()
    end
    M.start()
    return applied.counts
end

function M.stop()
    ttl.configure{enabled = false}
    stop()
    return true
end

return M
