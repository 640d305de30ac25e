-- Many small objects become one pack: the rows stay what they are, and point there from one transaction on. What they
-- pointed at goes the way of every payload, through the trash, after the grace in which URLs and backups may need it,
-- and not before the journal tells where they are now.
local clock = require('mts.clock')
local errors = require('mts.errors')
local extent = require('mts.extent')
local object = require('mts.object')
local quarantine = require('mts.quarantine')
local schema = require('mts.schema')
local txn = require('mts.txn')

local F = schema.message
local M = {}

local function fits(row, item)
    local name, first, bytes = item[2], item[3], item[4]
    if row == nil or row[F.object_name] ~= name or row[F.unverified] == true or quarantine.holds(row) then
        return false
    end
    local now_first, now_bytes = extent.span(row)
    return now_first == first and now_bytes == bytes
end

local function is_usable(target, grace)
    local age = clock.milliseconds() - clock.id_time(target:match('([^/]+)$'))
    return age <= grace * 500 and not object.in_trash(target) and box.space.object:get(target) == nil
end

-- The pack `target` is in the bucket, with the payloads of rows {{key, object_name, first byte, bytes, new first byte},
-- ...}: they point there from now on. False when a row is not as it was, for one that was deleted must not live on in a
-- new object: then nothing changes, and the target goes.
function M.switch(target, moves, grace)
    if #moves == 0 or #moves > schema.PER_TRANSACTION or not object.is_pack(target) then
        errors.refuse('bad_request', 'rows are moved to a pack, ' .. schema.PER_TRANSACTION .. ' at most at once')
    end
    return txn.run(function()
        if box.space.object:get(target) ~= nil then
            return object.is_referred(target) -- asked again: it was done
        end
        local is_all = is_usable(target, grace)
        for _, item in ipairs(moves) do
            is_all = is_all and fits(box.space.message:get(item[1]), item)
        end
        if not is_all then
            object.discard_at_once(target, 'abandoned_compaction')
            return false
        end
        for _, item in ipairs(moves) do
            box.space.message:update(item[1], {{'=', F.object_name, target}, {'=', F.byte_from, item[5]},
                {'=', F.sha256, box.NULL}})
            object.release(item[2], object.MOVED)
        end
        box.space.object:insert{target, #moves}
        return true
    end)
end

return M
