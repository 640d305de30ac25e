-- A refusal is an answer, not a failure: it carries a code the caller can act on and is never logged as an error.
local M = {}

-- Without the guard of our own API, what a caller sees of a refusal is its text.
local Refusal = {__tostring = function(refusal)
    return refusal.message
end}

function M.refuse(code, message, details)
    error(setmetatable({code = code, message = message, details = details}, Refusal), 0)
end

function M.is_refusal(value)
    return type(value) == 'table' and getmetatable(value) == Refusal
end

local UNAVAILABLE = {
    [box.error.WAL_IO or -1] = 'its log cannot be written; is the disk full?',
    [box.error.CASCADE_ROLLBACK or -1] = 'a write before it failed; is the disk full?',
    [box.error.MEMORY_ISSUE or -1] = 'it is out of memory; raise tarantool.memory',
    [box.error.READONLY or -1] = 'it is read-only',
}

-- What the caller may know of any error.
function M.describe(value)
    if M.is_refusal(value) then
        return {code = value.code, message = value.message, details = value.details}
    end
    local is_box_error = type(value) == 'cdata'
    local why = is_box_error and value.code and UNAVAILABLE[value.code]
    if is_box_error and value.type == 'OutOfMemory' then
        why = UNAVAILABLE[box.error.MEMORY_ISSUE]
    end
    if why then
        return {code = 'unavailable', message = 'Tarantool did not store this: ' .. why}
    end
    return {code = 'internal', message = 'Tarantool failed; its log says more under this request id'}
end

return M
