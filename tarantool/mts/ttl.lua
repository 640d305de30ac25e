-- How long messages stay: one configuration for all subjects, kept in `state`, and what a subject sets for itself.
local durable_settings = require('mts.consumer_settings')
local schema = require('mts.schema')
local settings = require('mts.subject_settings')
local subjects = require('mts.subject')
local txn = require('mts.txn')

local M = {}

local KEY = 'ttl'
local DAY = 24 * 3600
M.LEAST, M.MOST = 1, 10 * 365 * DAY -- seconds
local LONGEST_PAUSE = 7 * DAY
local KNOWN = {enabled = true, default_ttl = true, check_interval = true, channels = true}

local UNSET = {enabled = false, default_ttl = DAY, check_interval = 60, channels = schema.map{}}

local known -- the row in `state`, and what it says

-- {enabled, default_ttl, check_interval, channels}. Not to be changed by the caller. Nothing expires before somebody
-- has configured it.
function M.get()
    local row = box.space.state:get(KEY)
    if row == nil then
        return UNSET
    end
    if known == nil or known.row ~= row then
        local value = row[schema.state.value]
        value.channels = schema.map(value.channels)
        known = {row = row, value = value}
    end
    return known.value
end

function M.check_seconds(field, value)
    return settings.whole(field, value, M.LEAST, M.MOST)
end

local function checked_channels(channels)
    if type(channels) ~= 'table' then
        settings.refuse('channels', 'must be a map of subjects to seconds')
    end
    local result = schema.map{}
    for name, seconds in pairs(channels) do
        if not subjects.is_name(name) then
            settings.refuse('channels', 'must be a map of subjects to seconds')
        end
        result[name] = M.check_seconds('channels.' .. name, seconds)
    end
    return result
end

local function checked_pause(value)
    if type(value) == 'cdata' then
        value = tonumber(value)
    end
    if type(value) ~= 'number' or not (value >= 0.01 and value <= LONGEST_PAUSE) then
        settings.refuse('check_interval', ('must be seconds, at most %d'):format(LONGEST_PAUSE))
    end
    return value
end

-- `current` with what `wanted` names.
local function merged(current, wanted)
    if type(wanted) ~= 'table' then
        settings.refuse('config', 'must be a table')
    end
    local result = {enabled = current.enabled, default_ttl = current.default_ttl,
        check_interval = current.check_interval, channels = current.channels}
    for name, value in pairs(wanted) do
        if not KNOWN[name] then
            settings.refuse(tostring(name),
                'is not a setting; those are enabled, default_ttl, check_interval, channels')
        elseif value == nil then -- a null from outside: as it is
            value = result[name]
        elseif name == 'enabled' and type(value) ~= 'boolean' then
            settings.refuse(name, 'must be true or false')
        elseif name == 'default_ttl' then
            value = M.check_seconds(name, value)
        elseif name == 'check_interval' then
            value = checked_pause(value)
        elseif name == 'channels' then
            value = checked_channels(value)
        end
        result[name] = value
    end
    return result
end

-- Change what `wanted` names; the rest stays.
function M.configure(wanted)
    return txn.run(function()
        local current = M.get()
        local value = merged(current, wanted)
        value.written = current.written
        box.space.state:replace{KEY, value}
        return value
    end)
end

local function same_channels(one, other)
    for name, seconds in pairs(one) do
        if other[name] ~= seconds then
            return false
        end
    end
    return true
end

local function same(one, other)
    return one.enabled == other.enabled and one.default_ttl == other.default_ttl
        and one.check_interval == other.check_interval
        and same_channels(one.channels, other.channels) and same_channels(other.channels, one.channels)
end

-- A host's settings count where nobody configured anything yet, where the last one to do so was a host, and where
-- somebody wrote down (`given`) others than before. What an operator configured since stays otherwise, also when each
-- worker of a host, each run of a function and each repeated call applies the same again. Returns whether they count,
-- and whether that changed anything.
function M.apply(wanted, given)
    return txn.run(function()
        local before = box.space.state:get(KEY) and M.get()
        local value = merged(UNSET, wanted)
        local is_new = given and not (before and before.written and same(before.written, value))
        if before and not before.by_host and not is_new then
            return {counts = false, changed = false}
        end
        local changed = not (before and before.by_host and same(before, value))
        if changed or is_new then
            local written = given and merged(UNSET, wanted) or before and before.written
            value.written, value.by_host = written or nil, true
            box.space.state:replace{KEY, value}
        end
        return {counts = true, changed = changed}
    end)
end

-- A dead letter stays at least as long as a message of the subject it came from, unless its own says otherwise.
local function seconds_of(config, name, subject_row)
    local own = subject_row and settings.of(subject_row).ttl or config.channels[name]
    local origin = own == nil and durable_settings.origin(name)
    if not origin then
        return own or config.default_ttl
    end
    return math.max(config.default_ttl, seconds_of(config, origin, subjects.find(origin)))
end

-- Seconds that messages of a subject stay; nil when they do not expire by time. `subject_row` may be nil.
function M.of(name, subject_row)
    local config = M.get()
    return config.enabled and seconds_of(config, name, subject_row) or nil
end

-- Messages of subjects with the same class end together, as far as that can be told: a pack of them ends as a whole.
-- Where a limit of messages or bytes ends them, nobody knows when that will be: such a subject is a class of its own.
function M.class(name, subject_row)
    local set = subject_row and settings.of(subject_row)
    if set and (set.max_messages or set.max_bytes) and M.get().enabled then
        return name
    end
    local seconds = M.of(name, subject_row)
    return seconds and ('%.0f'):format(seconds) or ''
end

return M
