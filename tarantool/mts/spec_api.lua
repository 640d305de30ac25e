-- The functions of the specification, by their names, arguments and results. They expand extents: a tuple is one
-- message, the specification's five fields first, ours behind.
local commit = require('mts.commit')
local consumer = require('mts.consumer')
local errors = require('mts.errors')
local extent = require('mts.extent')
local message = require('mts.message')
local partition = require('mts.partition')
local retention = require('mts.retention')
local schema = require('mts.schema')
local subjects = require('mts.subject')
local ttl = require('mts.ttl')
local ttl_fiber = require('mts.ttl_fiber')
local txn = require('mts.txn')

local F = schema.message
local M = {}

local EMPTY = schema.map{}

function M.get_next_sequence()
    return commit.next_sequence()
end

-- Both forms: (subject, object_name, headers) and (subject, headers). Such a message has no ticket and its payload
-- was not verified: it is marked so.
function M.publish_message(subject, object_name, headers)
    if type(object_name) == 'table' then
        object_name, headers = nil, object_name
    end
    assert(type(subject) == 'string' and subject ~= '', 'subject cannot be empty')
    assert(headers == nil or type(headers) == 'table', 'headers must be a map')
    headers = setmetatable(headers or {}, getmetatable(EMPTY))
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

-- What a caller of the specification's functions sees of a refusal is its text.
local function told(fn, ...)
    local results = {pcall(fn, ...)}
    if not results[1] then
        local problem = results[2]
        error(errors.is_refusal(problem) and problem.message or problem, 0)
    end
    return unpack(results, 2)
end

function M.configure_ttl(config)
    return told(ttl_fiber.configure, config)
end

M.start_ttl_cleanup = ttl_fiber.start
M.stop_ttl_cleanup = ttl_fiber.stop

function M.get_ttl_status()
    local config = ttl.get()
    return {enabled = config.enabled, default_ttl = config.default_ttl, check_interval = config.check_interval,
        fiber_running = ttl_fiber.is_running(), channels = config.channels}
end

-- At most 100,000 messages a call: call again until it deletes none.
function M.delete_old_messages(ttl_seconds)
    return told(function()
        return retention.delete_older(ttl.check_seconds('ttl_seconds', ttl_seconds))
    end)
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
