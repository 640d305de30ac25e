-- What changed, for those who wait: a bounded ring of upload ids whose state became durable, of subjects with new
-- messages, and of durables ('subject/durable') that were moved or have something free again. One long call per host
-- worker reads it, so a thousand who wait cost one waiting fiber.
local fiber = require('fiber')
local schema = require('mts.schema')
local uuid = require('uuid')

local M = {}

local SIZE = 16384
local MARK = '/' -- stands before names, so that they are not taken for ids
local boot = uuid.str()
local ring = {}
local count = 0
local changed = fiber.cond()

-- Ids as a list, names as a set; either may be nil.
function M.push(upload_ids, names)
    local before = count
    for _, id in ipairs(upload_ids or {}) do
        ring[count % SIZE + 1] = id
        count = count + 1
    end
    for name in pairs(names or {}) do
        ring[count % SIZE + 1] = MARK .. name
        count = count + 1
    end
    if count > before then
        changed:broadcast()
    end
end

-- What changed after the cursor; waits up to `timeout` seconds for the first. `lost` says that the cursor is of an
-- earlier run or fell out of the ring: whoever waits must look again.
function M.wait(cursor_boot, cursor, timeout)
    local ids, names, seen = schema.array{}, schema.array{}, {}
    if cursor_boot ~= boot then
        return {boot = boot, cursor = count, lost = true, ids = ids, names = names}
    end
    if cursor == count then
        changed:wait(math.min(timeout, 30))
    end
    local from = math.max(cursor, count - SIZE)
    for i = from, count - 1 do
        local key = ring[i % SIZE + 1]
        if key:sub(1, 1) ~= MARK then
            table.insert(ids, key)
        elseif not seen[key] then
            seen[key] = true
            table.insert(names, key:sub(2))
        end
    end
    return {boot = boot, cursor = count, lost = from > cursor, ids = ids, names = names}
end

return M
