-- Subjects and their incarnations: a subject deleted and made again is another one to everything old.
local clock = require('mts.clock')
local commit = require('mts.commit')
local schema = require('mts.schema')

local F = schema.subject
local M = {}

M.LONGEST = 240 -- of its name, with room behind it for the end of a dead-letter subject's
local DEAD_LETTERS = '%.dlq$'

-- May a subject be called this? For names that come from elsewhere than the path of a request, which takes the same:
-- another could not be reached.
function M.is_name(name)
    return type(name) == 'string' and name:match('^%w[%w._-]*$') ~= nil
        and (#name <= M.LONGEST or #name:gsub(DEAD_LETTERS, '') <= M.LONGEST)
end

function M.find(name)
    return box.space.subject:get(name)
end

-- The subject's row; made on first use. Inside a transaction.
function M.ensure(name)
    return box.space.subject:get(name) or M.create(name, schema.map{})
end

-- A new incarnation, with one partition. What lies below its first sequence is not its own.
function M.create(name, settings)
    return box.space.subject:insert{name, box.sequence.incarnation:next(), 1, clock.seconds(), settings,
        commit.given() + 1}
end

-- Change fields of a row, by number. Whatever is kept in memory about a subject holds for one row of it (the very
-- tuple), so a change of its partitions is always a change of its row too, in the same transaction; one rolled back
-- brings the old tuple back.
function M.change(row, changes)
    return box.space.subject:replace(schema.changed(row, changes))
end

-- False when the subject was deleted, or deleted and made again, since `incarnation`.
function M.is_current(name, incarnation)
    local row = box.space.subject:get(name)
    return row ~= nil and row[F.incarnation] == incarnation
end

return M
