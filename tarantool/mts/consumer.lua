-- Positions of durables, as the specification has them. A position never moves back by an update.
local commit = require('mts.commit')
local errors = require('mts.errors')
local schema = require('mts.schema')
local txn = require('mts.txn')

local F = schema.consumers
local M = {}

function M.position(durable_name, subject)
    return txn.run(function()
        local row = box.space.consumers:get{durable_name, subject}
        return row and row[F.last_sequence] or 0
    end)
end

function M.update(durable_name, subject, last_sequence)
    if last_sequence > commit.watermark() then
        errors.refuse('bad_request', 'last_sequence lies beyond the last message')
    end
    return txn.run(function()
        local row = box.space.consumers:get{durable_name, subject}
        if row == nil or last_sequence > row[F.last_sequence] then
            box.space.consumers:replace{durable_name, subject, last_sequence}
        end
        return true
    end)
end

function M.of_subject(subject)
    return txn.run(function()
        return box.space.consumers.index.subject:select(subject)
    end)
end

return M
