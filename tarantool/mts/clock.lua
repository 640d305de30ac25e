-- Time and time-ordered ids, both by this server's clock.
local fiber = require('fiber')
local system = require('clock')
local uuid = require('uuid')

local M = {}

function M.seconds()
    return math.floor(fiber.time())
end

function M.milliseconds()
    return math.floor(fiber.time() * 1000)
end

-- The wall clock when this process started, and since then the monotonic one: deadlines measured by it neither come
-- early nor late when the wall clock is set.
local behind_steady = fiber.time() - system.monotonic()

function M.steady_ms()
    return math.floor((behind_steady + system.monotonic()) * 1000)
end

-- How every id made at this time begins.
function M.id_start(milliseconds)
    local time = string.format('%012x', milliseconds)
    return time:sub(1, 8) .. '-' .. time:sub(9, 12) .. '-7'
end

-- A UUIDv7: its first 48 bits are milliseconds, so ids made later sort later.
function M.new_id()
    return M.id_start(M.milliseconds()) .. uuid.str():sub(16)
end

-- The milliseconds an id was made at.
function M.id_time(id)
    return tonumber(id:sub(1, 8) .. id:sub(10, 13), 16)
end

return M
