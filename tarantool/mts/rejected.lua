-- Events that did not fit: what came, when, why. The newest thousand, for an operator to look at.
local clock = require('mts.clock')
local schema = require('mts.schema')
local txn = require('mts.txn')

local F = schema.rejected_event
local M = {}

local KEPT = 1000

-- Inside a transaction.
function M.record(object_name, reason)
    local row = box.space.rejected_event:insert{box.NULL, clock.seconds(), object_name, reason}
    if row[F.id] > KEPT then
        box.space.rejected_event:delete(row[F.id] - KEPT)
    end
end

function M.add(object_name, reason)
    return txn.run(function()
        M.record(object_name, reason)
        return true
    end)
end

function M.newest(limit)
    local rows = {}
    for _, row in box.space.rejected_event:pairs({}, {iterator = 'REQ'}) do
        if #rows >= limit then
            break
        end
        table.insert(rows, {at = row[F.at], object_name = row[F.object_name], reason = row[F.reason]})
    end
    return rows
end

return M
