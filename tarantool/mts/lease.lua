-- Leases: work that one host at a time does. Taking one again by its holder prolongs it.
local clock = require('mts.clock')
local txn = require('mts.txn')

local M = {}

function M.take(name, owner, seconds)
    return txn.run(function()
        local key, now = 'lease.' .. name, clock.seconds()
        local row = box.space.state:get(key)
        if row and row[2].owner ~= owner and row[2].until_at > now then
            return false
        end
        box.space.state:replace{key, {owner = owner, until_at = now + math.ceil(seconds)}}
        return true
    end)
end

return M
