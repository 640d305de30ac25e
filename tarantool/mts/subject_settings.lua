-- Settings of a subject: what may be set, what holds where nothing is set, and refusals that name field and limits.
local errors = require('mts.errors')
local ffi = require('ffi')
local schema = require('mts.schema')

local M = {}

M.MAX_PARTITIONS = 256
local CODECS = {'raw', 'gzip', 'zstd'}
local MAX_ID = 2048 -- characters of a producer id or a group

local LARGEST = 2 ^ 53
local MODES = {disabled = true, up = true, paused = true}
local AUTOPARTITIONING = {mode = 'disabled', max_partitions = 64, write_speed = 1024 * 1024, utilization = 80,
    stabilization = 300}
local NUMBERS = {
    ['quota.messages'] = {1, LARGEST}, ['quota.bytes'] = {1, LARGEST}, ['quota.rate'] = {1, 1000000000},
    ['autopartitioning.max_partitions'] = {1, M.MAX_PARTITIONS}, ['autopartitioning.write_speed'] = {1, 2 ^ 40},
    ['autopartitioning.utilization'] = {1, 100}, ['autopartitioning.stabilization'] = {1, 86400},
    ttl = {1, 10 * 365 * 86400}, max_messages = {1, LARGEST}, max_bytes = {1, LARGEST},
}
local RETENTION = {'ttl', 'max_messages', 'max_bytes'} -- what goes when: the oldest first
local KNOWN = {partitions = true, codecs = true, quota = true, autopartitioning = true, ttl = true,
    max_messages = true, max_bytes = true, copies = true}
local MAX_COPIES, MAX_ZONES = 16, 16

local function refuse(field, message, allowed)
    errors.refuse('bad_request', ('`%s` %s'):format(field, message), {field = field, allowed = allowed})
end

M.refuse = refuse

-- A whole number within limits, as a Lua number; large ones arrive as cdata.
function M.whole(field, value, least, most)
    local is_integer = type(value) == 'number' and value % 1 == 0
        or type(value) == 'cdata' and (ffi.istype('uint64_t', value) or ffi.istype('int64_t', value))
    if not is_integer or value < least or value > most then
        refuse(field, ('must be a whole number from %.0f to %.0f'):format(least, most), {least, most})
    end
    return tonumber(value)
end

local function listed(names)
    return table.concat(names, ', ')
end

local function one_of(names, name)
    for _, known in ipairs(names) do
        if known == name then
            return true
        end
    end
    return false
end

local function checked_codecs(codecs)
    if type(codecs) ~= 'table' or #codecs == 0 then
        refuse('codecs', 'must be a list of at least one of ' .. listed(CODECS), CODECS)
    end
    local kept = {}
    for _, codec in ipairs(codecs) do
        if not one_of(CODECS, codec) then
            refuse('codecs', ('cannot hold %s; codecs are %s'):format(tostring(codec), listed(CODECS)), CODECS)
        end
        if not one_of(kept, codec) then
            table.insert(kept, codec)
        end
    end
    return kept
end

local function checked_part(name, part, current)
    if type(part) ~= 'table' then
        refuse(name, 'must be an object')
    end
    local result = schema.map{}
    for key, value in pairs(current or {}) do
        result[key] = value
    end
    for key, value in pairs(part) do
        local field = ('%s.%s'):format(name, tostring(key))
        if field == 'autopartitioning.mode' then
            if value ~= nil and not MODES[value] then
                refuse(field, 'must be one of disabled, up, paused', {'disabled', 'up', 'paused'})
            end
        elseif NUMBERS[field] == nil then
            refuse(field, 'is not a setting')
        elseif value ~= nil then
            value = M.whole(field, value, NUMBERS[field][1], NUMBERS[field][2])
        end
        result[key] = schema.present(value)
    end
    return next(result) and result or nil
end

-- How many copies of payloads the catalog shall keep, and in which zones.
local function checked_copies(copies)
    if type(copies) ~= 'table' then
        refuse('copies', 'must be an object')
    end
    local result = schema.map{rf = M.whole('copies.rf', copies.rf, 1, MAX_COPIES)}
    for key in pairs(copies) do
        if key ~= 'rf' and key ~= 'zones' then
            refuse(('copies.%s'):format(tostring(key)), 'is not a setting')
        end
    end
    local zones = schema.present(copies.zones)
    if zones ~= nil then
        if type(zones) ~= 'table' or #zones > MAX_ZONES then
            refuse('copies.zones', ('must be a list of at most %d names'):format(MAX_ZONES))
        end
        for _, zone in ipairs(zones) do
            if type(zone) ~= 'string' or not zone:match('^%w[%w._-]*$') or #zone > 63 then
                refuse('copies.zones', 'must hold names of letters, digits, . _ -')
            end
        end
        result.zones = #zones > 0 and zones or nil
    end
    return result
end

local function check_mode(current, wanted)
    local before = current.autopartitioning and current.autopartitioning.mode or 'disabled'
    local after = wanted.autopartitioning and wanted.autopartitioning.mode or 'disabled'
    if before ~= 'disabled' and after == 'disabled' then
        refuse('autopartitioning.mode', 'cannot go back to disabled: partitions may have split, and only their tree '
            .. 'keeps the order; pause it instead', {'up', 'paused'})
    end
end

-- `current` settings as stored, changed by what `wanted` names; null takes a setting back to its default. Partitions
-- are not kept here: they are rows.
function M.merge(current, wanted)
    local result = schema.map{codecs = current.codecs, quota = current.quota,
        autopartitioning = current.autopartitioning, ttl = current.ttl, max_messages = current.max_messages,
        max_bytes = current.max_bytes, copies = current.copies}
    for key, value in pairs(wanted) do
        if not KNOWN[key] then
            refuse(tostring(key), 'is not a setting; those are partitions, codecs, quota, autopartitioning, '
                .. listed(RETENTION) .. ', copies')
        elseif value == nil then -- a null from outside
            result[key] = nil
        elseif key == 'codecs' then
            result.codecs = checked_codecs(value)
        elseif key == 'copies' then
            result.copies = checked_copies(value)
        elseif NUMBERS[key] then
            result[key] = M.whole(key, value, NUMBERS[key][1], NUMBERS[key][2])
        elseif key ~= 'partitions' then
            result[key] = checked_part(key, value, current[key])
        end
    end
    check_mode(current, result)
    return result
end

local known = {} -- by subject: decoded settings and the row they are of

-- The settings of a subject's row, with defaults. Not to be changed by the caller.
function M.of(subject_row)
    local name = subject_row[schema.subject.name]
    local entry = known[name]
    if entry and entry.row == subject_row then
        return entry.settings
    end
    local stored = subject_row[schema.subject.settings]
    local auto = schema.map{}
    for key, default in pairs(AUTOPARTITIONING) do
        auto[key] = stored.autopartitioning and stored.autopartitioning[key] or default
    end
    local settings = schema.map{codecs = stored.codecs or CODECS, quota = schema.map(stored.quota or {}),
        autopartitioning = auto}
    for _, key in ipairs(RETENTION) do
        settings[key] = stored[key]
    end
    settings.copies = stored.copies
    known[name] = {row = subject_row, settings = settings}
    return settings
end

function M.forget(name)
    known[name] = nil
end

-- The codec as it is stored (null for raw); refused where the subject does not take it. `subject_row` may be nil.
function M.codec(subject_row, codec)
    codec = schema.present(codec) or 'raw'
    local allowed = subject_row and M.of(subject_row).codecs or CODECS
    if not one_of(allowed, codec) then
        errors.refuse('codec_not_allowed', ('codec %s is not allowed here; allowed: %s'):format(tostring(codec),
            listed(allowed)), {codec = codec, allowed = allowed})
    end
    return codec ~= 'raw' and codec or nil
end

-- A producer id or a group, as long as it may be.
function M.check_id(field, id)
    if #id > MAX_ID and (utf8.len(id) or #id) > MAX_ID then
        refuse(field, ('must have at most %d characters'):format(MAX_ID), {1, MAX_ID})
    end
end

return M
