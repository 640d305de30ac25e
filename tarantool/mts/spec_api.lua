-- The functions of the specification, by their names, arguments and results. They expand extents: a tuple is one
-- message, the specification's five fields first, ours behind.
local commit = require('mts.commit')
local consumer = require('mts.consumer')
local extent = require('mts.extent')
local message = require('mts.message')
local partition = require('mts.partition')
local retention = require('mts.retention')
local schema = require('mts.schema')
local settings = require('mts.subject_settings')
local subjects = require('mts.subject')
local ttl = require('mts.ttl')
local ttl_fiber = require('mts.ttl_fiber')
local txn = require('mts.txn')

local F = schema.message
local M = {}

local LONGEST_KEY = 1024
local MOST_HEADERS, MOST_HEADER_BYTES = 64, 16 * 1024

function M.get_next_sequence()
    return commit.next_sequence()
end

local function is_text(value)
    return type(value) == 'string' and value ~= '' and utf8.len(value) ~= nil
end

-- What readers could not be shown must not get in: the bounds are those of the API.
local function checked_headers(headers)
    local count, bytes = 0, 0
    for name, value in pairs(type(headers) == 'table' and headers or {0}) do
        if not is_text(name) or not (value == '' or is_text(value)) then
            settings.refuse('headers', 'must be a map of names to texts, both UTF-8')
        end
        count, bytes = count + 1, bytes + #name + #value
    end
    if count > MOST_HEADERS or bytes > MOST_HEADER_BYTES then
        settings.refuse('headers', ('must be at most %d, of %d bytes together'):format(MOST_HEADERS, MOST_HEADER_BYTES))
    end
    return schema.map(headers)
end

-- Both forms: (subject, object_name, headers) and (subject, headers). Such a message has no ticket and its payload
-- was not verified: it is marked so.
function M.publish_message(subject, object_name, headers)
    if type(object_name) == 'table' then
        object_name, headers = nil, object_name
    end
    if not subjects.is_name(subject) then
        settings.refuse('subject', ('must be 1 to %d of A-Z a-z 0-9 . _ -, starting with a letter or digit')
            :format(subjects.LONGEST))
    end
    object_name = schema.present(object_name)
    if object_name ~= nil and not (is_text(object_name) and #object_name <= LONGEST_KEY) then
        settings.refuse('object_name', ('must be text of 1 to %d bytes of UTF-8'):format(LONGEST_KEY))
    end
    headers = checked_headers(schema.present(headers) or {})
    return txn.run(function(effects)
        return (commit.append(effects, subject, partition.lane_for(subjects.ensure(subject), {}),
            {headers = headers, object_name = object_name, count = 1, size = 0, unverified = true}))
    end)
end

local function single(row)
    return box.tuple.new(row)
end

function M.get_message_by_sequence(sequence)
    local row = message.get(sequence)
    return row and single(row)
end

function M.get_message_by_sequence_decoded(sequence)
    local row = message.get(sequence)
    return row and {sequence = row[F.sequence], headers = row[F.headers], object_name = row[F.object_name],
        subject = row[F.subject], create_at = row[F.create_at]}
end

function M.get_messages_by_subject(subject, start_sequence, limit)
    local found = {}
    for _, row in ipairs(message.page(subject, start_sequence or 0, limit).rows) do
        local cut = extent.cutter(row)
        for index = 0, row[F.count] - 1 do
            table.insert(found, single(cut(index, 1)))
        end
    end
    return schema.array(found)
end

function M.get_latest_sequence_for_subject(subject)
    return message.latest(subject)
end

function M.get_subject_message_count(subject)
    return txn.run(function()
        local total = 0
        for _, lane in box.space.partition:pairs({subject}, {iterator = 'EQ'}) do
            total = total + lane[schema.partition.messages]
        end
        return total
    end)
end

M.configure_ttl = ttl_fiber.configure
M.start_ttl_cleanup = ttl_fiber.start
M.stop_ttl_cleanup = ttl_fiber.stop

function M.get_ttl_status()
    local config = ttl.get()
    return {enabled = config.enabled, default_ttl = config.default_ttl, check_interval = config.check_interval,
        fiber_running = ttl_fiber.is_running(), channels = config.channels}
end

-- At most 100,000 messages a call: call again until it deletes none.
function M.delete_old_messages(ttl_seconds)
    return retention.delete_older(ttl.check_seconds('ttl_seconds', ttl_seconds))
end

M.update_consumer_position = consumer.update
M.get_consumer_position = consumer.position
M.get_consumers_by_subject = consumer.of_subject

function M.get_new_messages_count(subject, durable_name, since_sequence)
    if durable_name ~= nil and durable_name ~= '' then
        return consumer.new_count(durable_name, subject)
    end
    return message.count_after(subject, schema.present(since_sequence) or 0)
end

function M.check_new_messages(subject, durable_name)
    local position = consumer.position(durable_name, subject)
    local count = consumer.new_count(durable_name, subject)
    return {has_new = count > 0, latest_sequence = message.latest(subject), consumer_position = position,
        new_count = count}
end

return M
