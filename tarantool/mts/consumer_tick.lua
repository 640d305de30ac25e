-- What durables need when nobody calls: sessions whose readers are gone, messages whose last try has ended. Both come
-- from queues of what is due (in memory, and an index), so durables with nothing to do cost nothing. What is left of
-- deleted ones is looked for after a start and after a deletion.
local consumer = require('mts.consumer')
local deadlines = require('mts.session_deadline')
local give_up = require('mts.delivery_give_up')
local sessions = require('mts.session')

local M = {}

function M.tick(limit)
    local dropped = 0
    for _, key in ipairs(deadlines.ended(limit)) do
        dropped = dropped + sessions.drop_dead(key[2], key[1])
    end
    local dead_lettered, more = give_up.due(limit)
    return {sessions_dropped = dropped, dead_lettered = dead_lettered, cleared = consumer.clear_deleted(limit),
        more = more}
end

return M
