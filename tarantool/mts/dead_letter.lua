-- Dead letters: what could not be delivered, in a subject of its own. A dead letter points at the payload of the
-- message it came from; headers tell where that was, why it is here and how often it was tried.
local clock = require('mts.clock')
local commit = require('mts.commit')
local durables = require('mts.durable')
local errors = require('mts.errors')
local extent = require('mts.extent')
local fiber = require('fiber')
local message = require('mts.message')
local object = require('mts.object')
local partition = require('mts.partition')
local schema = require('mts.schema')
local settings = require('mts.consumer_settings')
local subjects = require('mts.subject')
local txn = require('mts.txn')

local C, F = schema.consumers, schema.message
local M = {}

local PREFIX = 'mts-dlq-'
local MOST_DURABLES = 1000 -- of a subject, asked where their dead letters go

local function digits(number)
    return tostring(number):match('%d+')
end

-- The active partition that is named, or the one whose turn it is: the key of a message is not kept.
local function lane_of(subject_row, named)
    local number = type(named) == 'string' and named:match('^%d+$') and tonumber(named)
    if number and partition.lanes(subject_row).is_active[number] then
        return number
    end
    return partition.lane_for(subject_row, {})
end

-- Append to `subject` what a row points at, by reference, to the partition `named` while that takes messages. Inside a
-- transaction that read the live row.
local function append(effects, subject, row, headers, content_type, named)
    if row[F.unverified] ~= true then
        object.retain(row[F.object_name])
    end
    return commit.append(effects, subject, lane_of(subjects.ensure(subject), named), {
        headers = schema.map(headers), object_name = row[F.object_name],
        count = row[F.count], size = row[F.size], byte_from = schema.present(row[F.byte_from]),
        sizes = schema.present(row[F.sizes]), own = row[F.count] > 1 and schema.present(row[F.own]) or nil,
        content_type = content_type, sha256 = schema.present(row[F.sha256]), codec = schema.present(row[F.codec]),
        unverified = schema.present(row[F.unverified])})
end

-- Put a message (a row of one) that a durable gave up on into its dead-letter subject.
function M.send(effects, consumer_row, row, reason, deliveries)
    local shared, content_type = extent.headers(row)
    local headers = {}
    for name, value in pairs(shared) do
        headers[name] = value
    end
    local facts = {subject = row[F.subject], sequence = digits(row[F.sequence]), partition = digits(row[F.partition]),
        offset = digits(row[F.offset]), durable = consumer_row[C.durable_name], reason = reason,
        deliveries = digits(deliveries), at = digits(clock.seconds())}
    for name, value in pairs(facts) do
        headers[PREFIX .. name] = value
    end
    append(effects, settings.of(consumer_row).dead_letter, row, headers, content_type)
end

-- Where the dead letters of a subject are: all of its own dead-letter subject, and of those that its durables name,
-- which others may use too, what came from it. A dead-letter subject stands for itself.
local function places_of(subject)
    local default = settings.dead_letter_subject(subject)
    local places, known, looked = {{name = default or subject}}, {}, 0
    if default == nil then
        return places
    end
    for _, row in box.space.consumers.index.subject:pairs({subject}, {iterator = 'EQ'}) do
        looked = looked + 1
        if looked > MOST_DURABLES then
            break
        end
        local name = settings.of(row).dead_letter
        if name ~= default and not known[name] and durables.is_current(row) then
            known[name] = true
            table.insert(places, {name = name,
                conditions = {{header = PREFIX .. 'subject', op = 'equals', value = subject}}})
        end
    end
    return places
end

-- Rows of all places in the order of their sequences, up to `limit` messages and not behind `upto`. Returns them and
-- where to go on.
local function merge(rows, limit, upto, whole)
    table.sort(rows, function(one, other) return one[F.sequence] < other[F.sequence] end)
    local taken, left = schema.array{}, limit
    for _, row in ipairs(rows) do
        if row[F.sequence] >= upto then
            break
        end
        if left <= 0 then
            return taken, extent.first(row)
        end
        local count = whole and row[F.count] or math.min(left, tonumber(row[F.count]))
        table.insert(taken, extent.slice(row, 0, count))
        left = left - tonumber(count)
        if count < row[F.count] then
            return taken, extent.first(row) + count
        end
    end
    return taken, upto
end

-- As message.page, over all places of a subject's dead letters.
local function page_of(places, start, limit, whole)
    local page
    local rows = {}
    for _, place in ipairs(places) do
        local found = message.page(place.name, start, limit, nil, whole, place.conditions)
        page = page or found
        page.next_sequence = found.next_sequence < page.next_sequence and found.next_sequence or page.next_sequence
        page.latest_sequence = found.latest_sequence > page.latest_sequence and found.latest_sequence
            or page.latest_sequence
        for _, row in ipairs(found.rows) do
            table.insert(rows, row)
        end
    end
    if #places > 1 then
        page.rows, page.next_sequence = merge(rows, limit, page.next_sequence, whole)
    end
    return page
end

function M.page(subject, start, limit)
    return txn.run(function()
        return page_of(places_of(subject), start, limit, false)
    end)
end

-- The names of the subjects that dead letters of `subject` are in.
function M.subjects(subject)
    return txn.run(function()
        local names = {}
        for _, place in ipairs(places_of(subject)) do
            table.insert(names, place.name)
        end
        return names
    end)
end

-- The first messages of a dead-letter subject that others use too may all be theirs: from where on the first of this
-- subject is found, looked for some at a time.
local function first_of(subject)
    local start = 0
    repeat
        local page = txn.run(function()
            return page_of(places_of(subject), start, 1, true)
        end)
        local found = #page.rows > 0 or page.next_sequence > page.latest_sequence
        start = found and start or page.next_sequence
        fiber.yield()
    until found
    return start
end

-- Where a dead letter came from. Whoever publishes to a dead-letter subject may write the header too: what is no name
-- makes no subject.
local function origin_of(row, headers)
    local named = headers[PREFIX .. 'subject']
    return subjects.is_name(named) and named or settings.origin(row[F.subject])
end

-- Back where it came from, as a new message without the headers that were added. In its partition it is again among
-- those of its key.
local function replay(effects, row)
    local shared, content_type = row[F.headers], schema.present(row[F.content_type])
    if row[F.count] == 1 then
        shared, content_type = extent.headers(row)
    end
    local headers = {}
    for name, value in pairs(shared) do
        if name:sub(1, #PREFIX) ~= PREFIX then
            headers[name] = value
        end
    end
    append(effects, origin_of(row, shared), row, headers, content_type, shared[PREFIX .. 'partition'])
    message.remove(row, 'replayed')
end

local function place_among(places, row)
    for _, place in ipairs(places) do
        if row[F.subject] == place.name then
            return place
        end
    end
end

local function pick(places, sequence)
    local row = message.locate(sequence)
    local place = row and place_among(places, row)
    local first = place and message.first_sequence(place.name)
    if first == nil or sequence < first or sequence > commit.watermark() then
        return nil
    end
    local condition = place.conditions and place.conditions[1]
    if condition and row[F.count] == 1 and extent.headers(row)[condition.header] ~= condition.value then
        return nil
    end
    if row[F.count] > 1 then
        errors.refuse('bad_request', 'this message was published there together with others; it is no dead letter',
            {sequence = sequence})
    end
    return row
end

-- Up to `limit` rows of a subject's dead letters: the first ones, from `start` on, or those with these sequences; and
-- whether there are more.
local function select_rows(subject, sequences, start, limit)
    limit = math.min(limit, schema.PER_TRANSACTION)
    local rows, places = {}, places_of(subject)
    if sequences == nil then
        local page = page_of(places, start, limit, true)
        return page.rows, page.next_sequence <= page.latest_sequence
    end
    local seen = {}
    for _, sequence in ipairs(sequences) do
        local row, name = pick(places, sequence), digits(sequence)
        if row and not seen[name] then
            if #rows == limit then
                return rows, true
            end
            seen[name] = true
            table.insert(rows, row)
        end
    end
    return rows, false
end

-- Send dead letters back to the subjects they came from, some at a time: those with these sequences, or the first
-- ones. A sequence that is not there (any more) is passed over. `subject`: the dead-letter subject or its origin.
function M.replay(subject, sequences, limit)
    local start = sequences == nil and first_of(subject) or nil
    return txn.run(function(effects)
        local rows, more = select_rows(subject, schema.present(sequences), start, limit)
        local replayed = 0
        for _, row in ipairs(rows) do
            replay(effects, row)
            replayed = replayed + tonumber(row[F.count])
        end
        return {replayed = replayed, more = more}
    end)
end

-- Remove dead letters, some at a time; payloads that nothing else points at go to the trash.
function M.purge(subject, limit)
    local start = first_of(subject)
    return txn.run(function()
        local rows, more = select_rows(subject, nil, start, limit)
        local purged = 0
        for _, row in ipairs(rows) do
            message.remove(row, 'purged')
            purged = purged + tonumber(row[F.count])
        end
        return {purged = purged, more = more}
    end)
end

return M
