-- Who holds back what: messages that had their time and stay because an important durable has not acked them. Measured
-- when a sweep meets them, and kept in memory, so that telling costs nothing.
local clock = require('mts.clock')
local durables = require('mts.durable')
local message = require('mts.message')
local schema = require('mts.schema')
local settings = require('mts.consumer_settings')

local C, F = schema.consumers, schema.message
local M = {}

local MOST_ROWS = 2000 -- looked at one by one; what stands behind them is reckoned
local MOST_TOLD = 100

local holds = {} -- by subject

local function important(subject)
    local found = {}
    for _, row in box.space.consumers.index.subject:pairs({subject}, {iterator = 'EQ'}) do
        if durables.is_current(row) and settings.is_important(row) then
            table.insert(found, {durable = row[C.durable_name], position = row[C.last_sequence], messages = 0,
                bytes = 0})
        end
    end
    return found
end

-- Messages of a subject behind a position that had their time, by offsets and limits: no walk.
local function reckon(subject, position, limits)
    local by_time = 0
    if limits.cutoff then
        local first_young = message.sequence_at(subject, limits.cutoff)
        by_time = message.count_after(subject, position) - message.count_after(subject, first_young - 1)
    end
    local by_number = limits.max_messages and limits.messages - limits.max_messages or 0
    return math.max(tonumber(by_time), tonumber(by_number))
end

-- `first` is the first extent that is held back; `limits` as they are before it, and are used up here.
function M.measure(subject, first, limits, must_go, pass)
    local holders, looked, last = important(subject), 0, nil
    local rows = box.space.message.index.subject_sequence:select({subject, first[F.sequence]},
        {iterator = 'GE', limit = MOST_ROWS})
    for _, row in ipairs(rows) do
        if row[F.subject] ~= subject or not must_go(limits, row) then
            break
        end
        for _, holder in ipairs(holders) do
            if row[F.sequence] > holder.position then
                holder.messages, holder.bytes = holder.messages + tonumber(row[F.count]),
                    holder.bytes + tonumber(row[F.size])
            end
        end
        pass(limits, row)
        looked, last = looked + 1, row
    end
    local estimated = looked == MOST_ROWS
    local entry = {subject = subject, since = first[F.create_at], holders = {}}
    for _, holder in ipairs(holders) do
        if last ~= nil and holder.position < last[F.sequence] then
            if estimated and holder.messages > 0 then
                local size = holder.bytes / holder.messages
                holder.messages = holder.messages + reckon(subject, last[F.sequence], limits)
                holder.bytes = math.floor(size * holder.messages)
            end
            holder.estimated = estimated
            table.insert(entry.holders, holder)
        end
    end
    return entry
end

-- `entry` nil: nothing of this subject is held back.
function M.set(subject, entry)
    holds[subject] = entry
end

-- {{subject, durable, messages, bytes, position, oldest_at, estimated}, ...}, the largest first.
function M.list()
    local told = schema.array{}
    for subject, entry in pairs(holds) do
        for _, holder in ipairs(entry.holders) do
            if durables.find(subject, holder.durable) then
                table.insert(told, {subject = subject, durable = holder.durable, messages = holder.messages,
                    bytes = holder.bytes, position = holder.position, oldest_at = entry.since,
                    estimated = holder.estimated, age = clock.seconds() - tonumber(entry.since)})
            end
        end
    end
    table.sort(told, function(one, other)
        if one.messages ~= other.messages then
            return one.messages > other.messages
        end
        return one.subject .. '/' .. one.durable < other.subject .. '/' .. other.durable
    end)
    for index = MOST_TOLD + 1, #told do
        told[index] = nil
    end
    return told
end

return M
