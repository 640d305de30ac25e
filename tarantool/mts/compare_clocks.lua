-- Is this server's clock to be trusted? What goes by the clock is gone for good, so nothing expires while the clock and
-- the object store's differ by more than five minutes (rule 27). Hosts compare the two; between two comparisons, and
-- where there never was a host, a jump of the wall clock against the steady one is noticed here.
local clock = require('mts.clock')
local fiber = require('fiber')
local schema = require('mts.schema')
local system = require('clock')
local txn = require('mts.txn')

local M = {}

local KEY = 'clock'
M.TOLERANCE = 300 -- seconds

local trusted -- wall minus steady clock when the wall clock was last known to be right; nil: it is not known to be
local drift_ms -- as last compared

local function ahead()
    return fiber.time() - system.monotonic()
end

-- After a restart a host must compare first, if there ever was one.
function M.start()
    drift_ms = nil
    trusted = box.space.state:get(KEY) == nil and ahead() or nil
end

-- The object store says that it is `store_ms` now. Returns how far this clock is ahead of it, and whether that will do.
function M.compare(store_ms)
    drift_ms = tonumber(clock.milliseconds() - store_ms)
    local agree = math.abs(drift_ms) <= M.TOLERANCE * 1000
    trusted = agree and ahead() or nil
    local row = box.space.state:get(KEY)
    if row == nil or row[schema.state.value].agree ~= agree then
        txn.run(function()
            box.space.state:replace{KEY, {agree = agree, drift_ms = drift_ms, at = clock.seconds()}}
        end)
    end
    return {agree = agree, drift_ms = drift_ms}
end

function M.are_right()
    return trusted ~= nil and math.abs(ahead() - trusted) <= M.TOLERANCE
end

-- Milliseconds that this clock was ahead of the store's when they were compared last; nil when they were not.
function M.drift_ms()
    return drift_ms
end

return M
