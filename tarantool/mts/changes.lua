-- What changed, for those who wait: a bounded ring of upload ids whose state became durable. One long call per host
-- worker reads it, so a thousand waiting receipts cost one waiting fiber.
local fiber = require('fiber')
local uuid = require('uuid')

local M = {}

local SIZE = 16384
local boot = uuid.str()
local ring = {}
local count = 0
local changed = fiber.cond()

function M.push(upload_ids)
    if #upload_ids == 0 then
        return
    end
    for _, id in ipairs(upload_ids) do
        ring[count % SIZE + 1] = id
        count = count + 1
    end
    changed:broadcast()
end

-- Ids that changed after the cursor; waits up to `timeout` seconds for the first. `lost` says that the cursor is
-- of an earlier run or fell out of the ring: whoever waits must look again.
function M.wait(cursor_boot, cursor, timeout)
    if cursor_boot ~= boot then
        return {boot = boot, cursor = count, lost = true, ids = setmetatable({}, {__serialize = 'array'})}
    end
    if cursor == count then
        changed:wait(math.min(timeout, 30))
    end
    local from = math.max(cursor, count - SIZE)
    local ids = setmetatable({}, {__serialize = 'array'})
    for i = from, count - 1 do
        table.insert(ids, ring[i % SIZE + 1])
    end
    return {boot = boot, cursor = count, lost = from > cursor, ids = ids}
end

return M
