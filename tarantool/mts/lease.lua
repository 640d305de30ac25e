-- Leases: work that one host at a time does. Taking one again by its holder prolongs it.
local clock = require('mts.clock')
local schema = require('mts.schema')
local txn = require('mts.txn')

local F = schema.state
local M = {}

function M.take(name, owner, seconds)
    return txn.run(function()
        local key, now = 'lease.' .. name, clock.seconds()
        local row = box.space.state:get(key)
        local held = row and row[F.value]
        -- One that ends later than any lease taken now could was taken before the clock was set back.
        if held and held.owner ~= owner and held.until_at > now and held.until_at <= now + 2 * math.ceil(seconds) then
            return false
        end
        box.space.state:replace{key, {owner = owner, until_at = now + math.ceil(seconds)}}
        return true
    end)
end

return M
