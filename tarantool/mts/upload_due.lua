-- What the reconciler walks: uploads in the order of the time at which someone must look at them. Its cost follows
-- what is due, never how much there is.
local clock = require('mts.clock')
local message = require('mts.message')
local schema = require('mts.schema')
local txn = require('mts.txn')
local upload = require('mts.upload')

local F = schema.upload
local M = {}

local LONGEST_PAUSE = 3600

-- A committed upload whose message still stands needs no look in the store: its row has served.
local function has_served(row)
    return row[F.state] == 'committed'
        and (row[F.byte_from] ~= nil or message.points_at(row[F.sequence], upload.object_name(row)))
end

-- Up to `limit` uploads to look at now; rows that have served are removed on the way.
function M.due(limit)
    return txn.run(function()
        local now, due, removed, seen = clock.seconds(), {}, {}, 0
        for _, row in box.space.upload.index.due:pairs() do
            if row[F.due_at] > now or #due >= limit or seen >= schema.PER_TRANSACTION then
                break
            end
            seen = seen + 1
            if has_served(row) then
                table.insert(removed, row[F.id])
            else
                table.insert(due, upload.describe(row))
            end
        end
        for _, id in ipairs(removed) do
            box.space.upload:delete(id)
        end
        return {uploads = schema.array(due), removed = #removed,
            more = seen >= schema.PER_TRANSACTION or #due >= limit}
    end)
end

-- Looked, and nothing was there yet: look again after a pause that doubles. Parts that arrived since the last look
-- extend the ticket.
function M.postpone(id, parts_seen, times)
    return txn.run(function()
        local row = box.space.upload:get(id)
        if row == nil or row[F.state] == 'stored' then
            return false
        end
        local now, expires_at = clock.seconds(), row[F.expires_at]
        if parts_seen > row[F.parts_seen] then
            expires_at = upload.extended(row, times)
        end
        local pause = math.min(times.first_look * 2 ^ math.min(row[F.looks] + 1, 20), LONGEST_PAUSE)
        local due_at = math.max(math.min(now + pause, expires_at + times.put_grace), now + 1)
        box.space.upload:update(id, {{'=', F.due_at, math.floor(due_at)}, {'+', F.looks, 1},
            {'=', F.parts_seen, math.max(parts_seen, row[F.parts_seen])}, {'=', F.expires_at, expires_at}})
        return true
    end)
end

-- The last look at an ended upload: an object that came late is discarded, and the row goes. So are the parts of one
-- that was begun while it ended, which only the store knows of.
function M.settle(id, object_is_there)
    return txn.run(function()
        local row = box.space.upload:get(id)
        if row == nil or row[F.state] == 'open' or row[F.state] == 'stored' then
            return false
        end
        if object_is_there or row[F.part_size] ~= nil then
            upload.discard_late(row)
        end
        box.space.upload:delete(id)
        return true
    end)
end

return M
