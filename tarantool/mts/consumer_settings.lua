-- What can be set on a durable, and what holds when it is not.
local errors = require('mts.errors')
local filter = require('mts.filter')
local schema = require('mts.schema')
local subjects = require('mts.subject')

local F = schema.consumers
local M = {}

local DEAD_LETTERS = '.dlq' -- how the name of a dead-letter subject ends
local MAX_DELIVER = 5
local ACK_WAIT = 30

function M.check_name(durable)
    if type(durable) ~= 'string' or #durable > 255 or not durable:match('^%w[%w._-]*$') then
        errors.refuse('bad_request', 'a durable is named by letters, digits, ".", "_" and "-", at most 255')
    end
end

local function is_dead_letter_subject(subject)
    return subject:sub(-#DEAD_LETTERS) == DEAD_LETTERS
end

-- Where what could not be delivered goes by default; a dead-letter subject has none.
function M.dead_letter_subject(subject)
    return not is_dead_letter_subject(subject) and subject .. DEAD_LETTERS or nil
end

-- The subject that a dead-letter subject is named after; nil for any other.
function M.origin(subject)
    return is_dead_letter_subject(subject) and subject:sub(1, -#DEAD_LETTERS - 1) or nil
end

local function check(name, value, fits, says)
    if value ~= nil and not fits(value) then
        errors.refuse('bad_request', ('%s must be %s'):format(name, says))
    end
    return schema.present(value)
end

local function is_count(value)
    return type(value) == 'number' and value >= 0 and value <= 1e9 and value == math.floor(value)
end

local CHECKS = {
    important = function(value)
        return check('important', value, function(v) return type(v) == 'boolean' end, 'true or false')
    end,
    max_deliver = function(value)
        return check('max_deliver', value, is_count, 'a whole number, 0 for no limit')
    end,
    ack_wait = function(value)
        return check('ack_wait', value, function(v) return type(v) == 'number' and v > 0 and v <= 43200 end,
            'seconds, at most 43200')
    end,
    dead_letter = function(value)
        return check('dead_letter', value, function(v)
            return subjects.is_name(v) and is_dead_letter_subject(v)
        end, 'a subject whose name ends in ' .. DEAD_LETTERS)
    end,
    filter = function(value)
        if value ~= nil then
            filter.check(value)
        end
        return schema.present(value)
    end,
}

local function given(options)
    local values = schema.map{}
    for name, checked in pairs(CHECKS) do
        values[name] = checked(options[name])
    end
    return values
end

-- Settings of a new durable.
function M.first(subject, options)
    local values = given(options)
    if is_dead_letter_subject(subject) then
        values.dead_letter = nil
    end
    return values
end

-- The settings with what `options` changes, or nil when they change nothing. An empty filter takes the filter away.
function M.merge(row, options)
    local values, changed = given(options), false
    local merged = schema.map(schema.present(row[F.settings]) or {})
    for name, value in pairs(values) do
        merged[name], changed = value, true
    end
    return changed and merged or nil
end

function M.of(row)
    local values, subject = schema.present(row[F.settings]) or {}, row[F.subject]
    return {
        important = values.important or false,
        filter = filter.check(values.filter),
        max_deliver = values.max_deliver or MAX_DELIVER,
        ack_wait = values.ack_wait or ACK_WAIT,
        dead_letter = not is_dead_letter_subject(subject) and (values.dead_letter or M.dead_letter_subject(subject))
            or nil,
    }
end

-- How often a message is tried; nil for ever: a dead-letter subject has no dead-letter subject.
function M.tries(row)
    local set = M.of(row)
    return set.dead_letter and set.max_deliver > 0 and set.max_deliver or nil
end

function M.is_important(row)
    return (schema.present(row[F.settings]) or {}).important == true
end

return M
