-- Rows whose payload is missing, kept apart: readers are told so instead of being sent to an object that is not there.
local clock = require('mts.clock')
local extent = require('mts.extent')
local schema = require('mts.schema')
local txn = require('mts.txn')

local F, Q = schema.message, schema.missing
local M = {}

local FLAG = 17 -- stands behind the fields of a message, where it is handed out

local function find(sequence)
    local entry = box.space.missing:select({sequence}, {iterator = 'GE', limit = 1})[1]
    return entry and entry[Q.first] <= sequence and entry or nil
end

function M.holds(row)
    return box.space.missing:len() > 0 and find(row[F.sequence]) ~= nil
end

-- Rows that are handed out, those without payload marked. Mostly there are none, and this costs nothing.
function M.mark(rows)
    if box.space.missing:len() == 0 then
        return rows
    end
    for at, row in ipairs(rows) do
        if find(row[F.sequence]) then
            rows[at] = schema.changed(box.tuple.is(row) and row or box.tuple.new(row), {[FLAG] = true})
        end
    end
    return rows
end

-- An extent is gone or was cut into `parts`: what holds for it holds for them.
function M.moved(row, parts)
    local entry = box.space.missing:len() > 0 and box.space.missing:get(row[F.sequence])
    if not entry then
        return
    end
    box.space.missing:delete(row[F.sequence])
    for _, part in ipairs(parts) do
        box.space.missing:insert{part[F.sequence], extent.first(part), entry[Q.at], entry[Q.reason]}
    end
end

-- Inside a transaction: the payload of messages `first` to `last`, one row, is not there.
function M.note(first, last, reason)
    if box.space.missing:get(last) == nil then
        box.space.missing:insert{last, first, clock.seconds(), reason}
    end
end

-- The payloads of rows that hold these messages {{sequence, object_name, reason}, ...} were looked for and not found.
-- Those that point elsewhere by now stay as they are. Returns how many messages of them are kept apart.
function M.add(items)
    return txn.run(function()
        local messages = 0
        for _, item in ipairs(items) do
            local row = box.space.message.index.primary:select({item[1]}, {iterator = 'GE', limit = 1})[1]
            local first = row and extent.first(row)
            if row and row[F.object_name] == item[2] and first <= item[1] then
                M.note(first, row[F.sequence], item[3])
                messages = messages + tonumber(row[F.count])
            end
        end
        return messages
    end)
end

-- The payloads of these rows are there again. Returns how many messages can be read again.
function M.release(keys)
    return txn.run(function()
        local messages = 0
        for _, key in ipairs(keys) do
            local entry = box.space.missing:get(key)
            if entry then
                box.space.missing:delete(key)
                messages = messages + tonumber(entry[Q.last] - entry[Q.first]) + 1
            end
        end
        return messages
    end)
end

return M
