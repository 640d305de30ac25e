-- Subjects and their incarnations: a subject deleted and made again is another one to everything old.
local clock = require('mts.clock')
local schema = require('mts.schema')

local F = schema.subject
local M = {}

function M.find(name)
    return box.space.subject:get(name)
end

-- The subject's row; made on first use. Inside a transaction.
function M.ensure(name)
    local row = box.space.subject:get(name)
    if row then
        return row
    end
    return box.space.subject:insert{name, box.sequence.incarnation:next(), 1, clock.seconds(),
        setmetatable({}, {__serialize = 'map'})}
end

function M.incarnation(row)
    return row[F.incarnation]
end

-- False when the subject was deleted, or deleted and made again, since `incarnation`.
function M.is_current(name, incarnation)
    local row = box.space.subject:get(name)
    return row ~= nil and row[F.incarnation] == incarnation
end

return M
