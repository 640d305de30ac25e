-- Shared durables for tests: each is named 'q' in its subject.
local consumer = require('mts.consumer')
local delivery = require('mts.delivery')
local harness = require('harness')
local schema = require('mts.schema')

local F = schema.message
local M = {}

function M.create(subject, count, more)
    local first = harness.publish(subject, count)
    local options = {mode = 'shared'}
    for name, value in pairs(more or {}) do
        options[name] = value
    end
    consumer.put(subject, 'q', options)
    return first
end

function M.lease(subject, limit, seconds)
    return delivery.lease(subject, 'q', limit, seconds or 30)
end

-- The sequences of a lease, less `base`, as small numbers.
function M.given(leased, base)
    local found = {}
    for _, row in ipairs(leased.rows) do
        for index = 0, row[F.count] - 1 do
            table.insert(found, tonumber(row[F.sequence] - row[F.count] + 1 + index - base))
        end
    end
    return found
end

function M.ranges(subject)
    return box.space.delivery:count{'q', subject}
end

return M
