-- What depends on the clock: lives of tickets (rule 7), of idempotency keys (rule 13), and create_at (rule 27).
package.path = require('fio').dirname(require('fio').abspath(arg[0])) .. '/?.lua;' .. package.path
local harness = require('harness')
local clock = require('mts.clock')
local idempotency = require('mts.idempotency')
local message = require('mts.message')
local outcome = require('mts.upload_outcome')
local pack = require('mts.pack')
local schema = require('mts.schema')
local spec_api = require('mts.spec_api')
local tap = require('tap')
local upload = require('mts.upload')
local upload_due = require('mts.upload_due')

local DAY = 24 * 3600
local now = clock.seconds()
clock.seconds = function()
    return now
end

local function expires_at(id)
    return upload.get(id).upload.expires_at
end

local test = tap.test('time')
test:plan(6)

test:test('asking for a ticket again prolongs it, never shortens it, and not for ever', function(t)
    t:plan(5)
    local announced = {producer_id = 'p', seqno = 1, part_size = 5}
    local ticket = harness.ticket('again', 10, announced).upload
    t:is(ticket.expires_at, now + 900, 'a named producer has 15 minutes')
    upload.extend(ticket.id, {producer_life = 3600, max_life = 7 * DAY})
    t:is(harness.ticket('again', 10, announced).upload.expires_at, now + 3600, 'what was signed before stays valid')
    now = now + 3600
    t:is(harness.ticket('again', 10, announced).upload.expires_at, now + 900, 'later it is prolonged')
    now = now + 7 * DAY
    t:is(harness.ticket('again', 10, announced).upload.expires_at, ticket.created_at + 7 * DAY, 'up to 7 days')
    upload.extend(ticket.id, harness.TIMES)
    t:is(expires_at(ticket.id), ticket.created_at + 7 * DAY, 'by parts as well')
end)

test:test('parts that arrived since the last look prolong a ticket by its own life', function(t)
    t:plan(3)
    local ticket = harness.ticket('parts', 10, {part_size = 5}).upload
    local named = harness.ticket('parts', 10, {part_size = 5, producer_id = 'p', seqno = 1}).upload
    now = now + 800
    upload_due.postpone(ticket.id, 0, harness.TIMES)
    t:is(expires_at(ticket.id), ticket.expires_at, 'none came')
    upload_due.postpone(ticket.id, 1, harness.TIMES)
    t:is(expires_at(ticket.id), now + 3600, 'one came')
    upload_due.postpone(named.id, 1, harness.TIMES)
    t:is(expires_at(named.id), now + 900, 'one of a named producer came')
end)

test:test('a ticket is not expired before its grace, and a stored one never', function(t)
    t:plan(4)
    local open = harness.ticket('ends', 1, {producer_id = 'p', seqno = 1}).upload
    local stored = harness.ticket('ends', 1, {producer_id = 'p', seqno = 2}).upload
    harness.commit(stored.id, 1)
    now = now + 900 + 899
    t:is(outcome.expire(open.id, 900).receipt.state, 'open', 'within the grace')
    now = now + 30 * DAY
    t:is(outcome.expire(stored.id, 900).receipt.state, 'stored', 'stored stays')
    t:is(outcome.expire(open.id, 900).receipt.state, 'expired', 'the open one ends')
    t:is(upload.get(stored.id).receipt.state, 'committed', 'and what waited behind it is visible')
end)

test:test('the row of an ended upload stays until its URL and the grace are over', function(t)
    t:plan(4)
    local ticket = harness.ticket('rows', 1).upload
    harness.commit(ticket.id, 1)
    now = now + 3600 + 899
    upload_due.due(1000)
    t:is(upload.get(ticket.id).receipt.state, 'committed', 'it stays')
    now = now + 1
    upload_due.due(1000)
    t:is(upload.get(ticket.id), nil, 'it goes')
    t:is(harness.commit(ticket.id, 1).state, 'unknown', 'an event after that changes nothing')
    t:is(box.space.trash:get(ticket.object_name), nil, 'least of all the payload')
end)

test:test('an idempotency key is known for a day', function(t)
    t:plan(3)
    local function publish()
        return pack.commit(harness.pack{{subject = 'key', sizes = {1},
            marks = {{index = 0, key = 'k', digest = 'd'}}}}, 3600)[1]
    end
    publish()
    now = now + DAY
    t:is(#publish().others, 1, 'a duplicate until then')
    now = now + 1
    t:is(#publish().others, 0, 'a new message after')
    now = now + 2 * DAY
    t:is(idempotency.trim(), 1, 'old keys are forgotten')
end)

test:test('create_at never steps back within a subject', function(t)
    t:plan(3)
    local function created_at(subject)
        return tonumber(message.get(spec_api.publish_message(subject, {}))[schema.message.create_at])
    end
    local first = created_at('clock')
    now = now - 100
    t:is(created_at('clock'), first, 'the clock went back, the stream did not')
    t:is(created_at('other'), now, 'another subject has its own time')
    now = now + 200
    t:is(created_at('clock'), now, 'and goes on when the clock has caught up')
end)

harness.finish(test)
