-- Filters on headers: a list of {header, op = 'equals' | 'prefix', value}, all of which must hold. Names are compared
-- as they were published, letter by letter.
local errors = require('mts.errors')
local schema = require('mts.schema')

local F = schema.message
local M = {}

local MOST = 16

local function condition_fits(condition)
    return type(condition) == 'table' and type(condition.header) == 'string' and type(condition.value) == 'string'
        and condition.header ~= '' and (condition.op == 'equals' or condition.op == 'prefix')
end

-- The filter, or nil for none; refuses what is not one.
function M.check(conditions)
    if conditions == nil then
        return nil
    end
    if type(conditions) ~= 'table' or #conditions > MOST then
        errors.refuse('bad_request', ('a filter is a list of at most %d conditions'):format(MOST))
    end
    for _, condition in ipairs(conditions) do
        if not condition_fits(condition) then
            errors.refuse('bad_request',
                "a condition has a header, an op ('equals' or 'prefix') and a value")
        end
    end
    return #conditions > 0 and conditions or nil
end

local function matches(conditions, headers)
    for _, condition in ipairs(conditions) do
        local value, wanted = headers[condition.header], condition.value
        if type(value) ~= 'string' then
            return false
        end
        if condition.op == 'prefix' then
            value = value:sub(1, #wanted)
        end
        if value ~= wanted then
            return false
        end
    end
    return true
end

-- Which of an extent's messages `from` .. `from + count - 1` match, as runs {{from, count}, ...}, up to `limit`
-- messages; and how many were looked at. Own headers stand in place of those that the extent shares.
function M.runs(conditions, row, from, count, limit)
    local shared = matches(conditions, row[F.headers])
    local own, at, runs, matched = schema.present(row[F.own]) or {}, 1, {}, 0
    if #own == 0 then
        local taken = math.min(count, limit)
        return shared and {{from, taken}} or {}, shared and taken or count
    end
    for index = from, from + count - 1 do
        while own[at] and own[at][1] < index do
            at = at + 1
        end
        local fits = shared
        if own[at] and own[at][1] == index and own[at][2] ~= nil then
            fits = matches(conditions, own[at][2])
        end
        if fits then
            if matched == limit then
                return runs, index - from
            end
            matched = matched + 1
            local last = runs[#runs]
            if last and last[1] + last[2] == index then
                last[2] = last[2] + 1
            else
                table.insert(runs, {index, 1})
            end
        end
    end
    return runs, count
end

return M
