-- Expiry from the head (rules 18, 25, 27): by age, number and bytes; what holds it back; what goes with it.
package.path = require('fio').dirname(require('fio').abspath(arg[0])) .. '/?.lua;' .. package.path
local harness = require('harness')
local clock = require('mts.clock')
local consumer = require('mts.consumer')
local delivery = require('mts.delivery')
local hold = require('mts.retention_hold')
local message = require('mts.message')
local object = require('mts.object')
local queues = require('queues')
local retention = require('mts.retention')
local schema = require('mts.schema')
local spec_api = require('mts.spec_api')
local subject_admin = require('mts.subject_admin')
local tap = require('tap')
local ttl = require('mts.ttl')
local upload = require('mts.upload')
local upload_due = require('mts.upload_due')

local DAY = 24 * 3600
local now = clock.seconds()
clock.seconds = function()
    return now
end

local function count(subject)
    return tonumber(spec_api.get_subject_message_count(subject))
end

local function expire()
    return (retention.run())
end

local function trash_of(sequence)
    local row = message.locate(sequence)
    return row[schema.message.object_name]
end

local function due_at(name)
    local row = box.space.trash:get(name)
    return row and tonumber(row[schema.trash.due_at])
end

-- Whatever earlier tests left goes, so that what is counted is a test's own.
local function clear()
    now = now + 20 * DAY
    expire()
    for _, row in ipairs(box.space.trash:select()) do
        box.space.trash:delete(row[1])
    end
end

local test = tap.test('retention')
test:plan(23)

test:test('nothing expires before it is configured', function(t)
    t:plan(2)
    harness.publish('unset', 1)
    now = now + 100 * DAY
    t:is(expire(), 0, 'nothing goes')
    t:is(ttl.get().enabled, false, 'and it says so')
    ttl.configure{enabled = true, default_ttl = DAY}
end)

test:test('messages go from the head when they are older than their time, not at it', function(t)
    t:plan(4)
    harness.publish('age', 3)
    now = now + 1
    harness.publish('age', 2)
    now = now + DAY - 1
    expire()
    t:is(count('age'), 5, 'as old as their time: they stay')
    now = now + 1
    expire()
    t:is(count('age'), 2, 'a second more: the first extent goes')
    now = now + 1
    expire()
    t:is(count('age'), 0, 'and the second')
    t:is(harness.publish('age', 1) > 5, true, 'sequences go on')
end)

test:test('a subject has the time it sets, else that of its channel, else the default', function(t)
    t:plan(5)
    ttl.configure{channels = {own = 50, channel = 200}}
    subject_admin.put('own', {ttl = 100})
    for _, name in ipairs{'own', 'channel', 'default'} do
        harness.publish(name, 1)
    end
    t:is(subject_admin.get('own').expires_after, 100, 'it is told')
    now = now + 101
    expire()
    t:is(count('own') .. count('channel') .. count('default'), '011', 'its own')
    now = now + 100
    expire()
    t:is(count('channel') .. count('default'), '01', 'its channel')
    subject_admin.put('own', {ttl = box.NULL})
    t:is(subject_admin.get('own').expires_after, 50, 'null takes its own away')
    ttl.configure{channels = {}}
    t:is(subject_admin.get('own').expires_after, DAY, 'the default is left')
end)

test:test('dead letters stay as long as a message of the subject they came from, and no less than others', function(t)
    t:plan(7)
    local function life(name)
        return ttl.of(name, box.space.subject:get(name))
    end
    subject_admin.put('kept', {ttl = 30 * DAY})
    subject_admin.put('brief', {ttl = 60})
    t:is(life('kept.dlq'), 30 * DAY, 'as long as where they came from')
    t:is(life('kept.dlq.dlq'), 30 * DAY, 'however far that is')
    t:is(life('brief.dlq'), DAY, 'not shorter than the default')
    subject_admin.put('brief.dlq', {ttl = 100})
    t:is(life('brief.dlq'), 100, 'unless the subject says so')
    ttl.configure{channels = {['kept.dlq'] = 200, away = 2 * DAY}}
    t:is(life('kept.dlq'), 200, 'or its channel')
    t:is(life('away.dlq'), 2 * DAY, 'of a subject that is not there, its channel counts')
    ttl.configure{channels = {}}
    harness.publish('kept.dlq', 1)
    now = now + 29 * DAY
    expire()
    t:is(count('kept.dlq'), 1, 'so they are there to be replayed')
end)

test:test('nothing expires while it is disabled', function(t)
    t:plan(3)
    harness.publish('disabled', 1)
    subject_admin.put('disabled', {ttl = 1, max_messages = 1})
    harness.publish('disabled', 1)
    spec_api.stop_ttl_cleanup()
    now = now + 10
    t:is(expire(), 0, 'by no setting')
    t:is(subject_admin.get('disabled').expires_after, nil, 'and it says so')
    ttl.configure{enabled = true}
    t:is(expire(), 2, 'until it is enabled again')
end)

test:test('the newest messages are kept, whole extents of them', function(t)
    t:plan(4)
    subject_admin.put('newest', {max_messages = 5})
    for _ = 1, 8 do
        harness.publish('newest', 1)
    end
    expire()
    t:is(count('newest'), 5, 'single ones exactly')
    harness.publish('newest', 4)
    expire()
    t:is(count('newest'), 5, 'a pack pushes out as many')
    harness.publish('newest', 100)
    expire()
    t:is(count('newest'), 100, 'a pack with more than may be kept stays whole')
    harness.publish('newest', 4)
    expire()
    t:is(count('newest'), 104, 'until what comes after it is enough')
end)

test:test('the newest bytes are kept, whole extents of them', function(t)
    t:plan(2)
    subject_admin.put('bytes', {max_bytes = 50})
    for _ = 1, 8 do
        harness.publish('bytes', 1)
    end
    expire()
    t:is(count('bytes'), 5, 'ten bytes each')
    subject_admin.put('bytes', {max_bytes = box.NULL})
    harness.publish('bytes', 1)
    expire()
    t:is(count('bytes'), 6, 'and without the limit nothing goes')
end)

test:test('an important durable holds back what it has not acked', function(t)
    t:plan(9)
    clear()
    local first = harness.publish('held', 3)
    local second = harness.publish('held', 2)
    consumer.put('held', 'careful', {important = true})
    consumer.put('held', 'careless', {})
    now = now + DAY + 1
    t:is(expire(), 0, 'nothing goes')
    local held = hold.list()[1]
    t:is(held.subject .. '/' .. held.durable, 'held/careful', 'and it is told who holds it back')
    t:is(held.messages, 5, 'how many messages')
    t:is(held.bytes, 50, 'and bytes')
    consumer.ack('held', 'careful', first + 1)
    t:is(expire(), 0, 'an extent acked in part stays whole')
    consumer.ack('held', 'careful', first + 2)
    t:is(expire(), 3, 'one acked to its end goes')
    t:is(hold.list()[1].messages, 2, 'the rest is held')
    consumer.delete('held', 'careful')
    t:is(expire(), 2, 'a durable that is gone holds nothing')
    t:is(#hold.list() .. ' ' .. tostring(message.locate(second)), '0 nil', 'and is not told any more')
end)

test:test('of several important durables the one furthest behind decides, ordered or shared', function(t)
    t:plan(6)
    clear()
    local first = harness.publish('several', 1)
    harness.publish('several', 1)
    harness.publish('several', 1)
    consumer.put('several', 'ordered', {important = true})
    consumer.put('several', 'q', {important = true, mode = 'shared'})
    consumer.ack('several', 'ordered', first + 1)
    local leased = queues.lease('several', 3)
    now = now + DAY + 1
    t:is(expire(), 0, 'what is leased is not acked')
    t:is(hold.list()[1].durable .. hold.list()[1].messages, 'q3', 'the shared one holds all')
    t:is(hold.list()[2].durable .. hold.list()[2].messages, 'ordered1', 'the ordered one the last')
    delivery.ack('several', 'q', leased.lease_id, {first + 1, first + 2})
    t:is(expire(), 0, 'acked behind one that is not')
    delivery.ack('several', 'q', leased.lease_id, {first})
    t:is(expire(), 2, 'acked from the head on')
    t:is(hold.list()[1].durable, 'ordered', 'the other one holds the rest')
    consumer.delete('several', 'ordered')
end)

test:test('limits of messages and bytes are held back as well', function(t)
    t:plan(3)
    clear()
    subject_admin.put('limits', {max_messages = 1})
    consumer.put('limits', 'careful', {important = true})
    harness.publish('limits', 1)
    harness.publish('limits', 1)
    t:is(expire(), 0, 'nothing goes')
    local held
    for _, entry in ipairs(hold.list()) do
        held = entry.subject == 'limits' and entry or held
    end
    t:is(held.messages, 1, 'one had to')
    subject_admin.delete('limits')
    for _, entry in ipairs(hold.list()) do
        held = entry.subject == 'limits' and 'still' or held
    end
    t:isnt(held, 'still', 'a deleted subject is not told')
end)

test:test('much that is held back is reckoned, not walked', function(t)
    t:plan(3)
    clear()
    consumer.put('much', 'careful', {important = true})
    for _ = 1, 2100 do
        harness.publish('much', 2)
    end
    now = now + DAY + 1
    harness.publish('much', 7)
    expire()
    local held = hold.list()[1]
    t:is(held.messages, 4200, 'all of them')
    t:is(held.bytes, 42000, 'their bytes by what the first ones have')
    t:is(held.estimated, true, 'and it says so')
    consumer.delete('much', 'careful')
    expire()
end)

test:test('delivery state goes with the messages, in the same write', function(t)
    t:plan(5)
    clear()
    local first = queues.create('leased', 4)
    local second = harness.publish('leased', 4)
    local leased = queues.lease('leased', 6)
    now = now + DAY + 1
    harness.publish('leased', 1)
    t:is(expire(), 8, 'leased messages expire as others do')
    t:is(queues.ranges('leased'), 0, 'no range is left of them')
    local described = consumer.get('leased', 'q')
    t:is(tonumber(described.outstanding), 0, 'nothing is outstanding')
    t:is(tonumber(described.lag), 1, 'the new one is to be read')
    t:is(harness.refusal(delivery.ack, 'leased', 'q', leased.lease_id, {first, second}), 'lease_lost',
        'a late ack says so')
end)

test:test('an extent leased in part leaves the ranges of the others', function(t)
    t:plan(3)
    clear()
    local first = queues.create('parts', 4)
    now = now + 10
    local second = harness.publish('parts', 4)
    local leased = queues.lease('parts', 6)
    now = now + DAY - 9
    t:is(expire(), 4, 'the first extent goes')
    t:is(tonumber(consumer.get('parts', 'q').outstanding), 2, 'two of the second are leased')
    t:is(delivery.ack('parts', 'q', leased.lease_id, {second, second + 1}).acked, 2, 'and can be acked')
    assert(first < second)
end)

test:test('a payload outlives its message by the grace', function(t)
    t:plan(5)
    clear()
    object.set_grace(7200)
    local ticket = harness.ticket('grace', 10).upload
    harness.commit(ticket.id, 10)
    now = now + DAY + 1
    expire()
    t:is(due_at(ticket.object_name), now + 7200, 'its last URL may still be used')
    t:is(#object.trash_due(10), 0, 'not deleted before')
    now = now + 100
    -- The row of its upload ends meanwhile, and finds the object there.
    upload_due.settle(ticket.id, true)
    t:is(due_at(ticket.object_name), now + 7100, 'whoever finds it there does not hasten it')
    t:is(upload.get(ticket.id), nil, 'its upload is forgotten')
    now = now + 7100
    t:is(object.trash_due(10)[1][1], ticket.object_name, 'then it goes')
    object.trash_done{ticket.object_name}
end)

test:test('what was never visible goes at once', function(t)
    t:plan(2)
    local ticket = harness.ticket('aborted', 10).upload
    require('mts.upload_outcome').abort(ticket.id, 900)
    t:is(due_at(ticket.object_name), now, 'an aborted upload')
    object.trash_postpone({ticket.object_name}, 60)
    upload_due.settle(ticket.id, true)
    t:is(due_at(ticket.object_name), now, 'and again when it is seen after a try to delete it')
end)

test:test('a payload stays while another message points at it', function(t)
    t:plan(4)
    clear()
    object.set_grace(0)
    local first = queues.create('origin', 1, {max_deliver = 1})
    local name = trash_of(first)
    now = now + DAY
    local leased = queues.lease('origin', 1)
    delivery.nack('origin', 'q', leased.lease_id, {first})
    now = now + 1
    t:is(expire(), 1, 'the message goes')
    t:is(due_at(name), nil, 'its dead letter has the payload')
    t:is(count('origin.dlq'), 1, 'and its own time')
    now = now + DAY
    expire()
    t:is(due_at(name), now, 'with that it goes')
end)

test:test('a pack goes when the last of its messages does, and ends as a whole when they are of one class', function(t)
    t:plan(4)
    clear()
    subject_admin.put('long', {ttl = 10 * DAY})
    local pack = harness.pack{{subject = 'short', sizes = {1, 1}}, {subject = 'long', sizes = {1}, byte_from = 99}}
    local answers = require('mts.pack').commit(pack, 3600)
    t:is_deeply({answers[1].retention, answers[2].retention}, {tostring(DAY), tostring(10 * DAY)}, 'told by the commit')
    subject_admin.put('short', {max_bytes = 1000})
    t:is(ttl.class('short', box.space.subject:get('short')), 'short', 'with a limit a subject is a class of its own')
    now = now + DAY + 1
    expire()
    t:is(due_at(pack.object_name), nil, 'a message needs it')
    now = now + 10 * DAY
    expire()
    t:is(due_at(pack.object_name), now, 'none needs it')
end)

test:test('a huge backlog goes in steps that are remembered', function(t)
    t:plan(6)
    clear()
    for _ = 1, 1200 do
        harness.publish('backlog', 1)
    end
    harness.publish('backlog-2', 1)
    now = now + DAY + 1
    local steps, most, total, step = 0, 0, 0
    repeat
        step = retention.step(100000)
        steps, most, total = steps + 1, math.max(most, step.rows), total + step.messages
        if steps == 1 then
            t:is(box.space.state:get('ttl_cursor')[2], 'backlog', 'where it goes on')
        end
    until not step.more
    t:is(most <= 500, true, 'no transaction is large')
    t:is(steps > 2, true, 'so there are several')
    t:is(count('backlog') .. count('backlog-2'), '00', 'at the end all is gone')
    t:is(box.space.state:get('ttl_cursor'), nil, 'and the next round begins at the first subject')
    t:is(tonumber(retention.last_round()), now, 'its end is known')
end)

test:test('two sweepers at once do no harm', function(t)
    t:plan(2)
    clear()
    local fiber = require('fiber')
    for _ = 1, 1500 do
        harness.publish('twice', 1)
    end
    now = now + DAY + 1
    local before, done = box.space.trash:len(), fiber.channel(2)
    for _ = 1, 2 do
        fiber.create(function()
            done:put(expire())
        end)
    end
    t:is(done:get(30) + done:get(30), 1500, 'each message is expired once')
    t:is(box.space.trash:len() - before, 1500, 'each payload is in the trash once')
end)

test:test('a row that is not durable does not expire', function(t)
    t:plan(1)
    local commit = require('mts.commit')
    local watermark = commit.watermark
    harness.publish('durable', 1)
    now = now + DAY + 1
    commit.watermark = function()
        return 0ULL
    end
    t:is(expire(), 0, 'nobody has seen it yet')
    commit.watermark = watermark
    expire()
end)

test:test('what a deleted subject left is cleared away, not expired', function(t)
    t:plan(2)
    for _ = 1, 600 do
        harness.publish('again', 1)
    end
    subject_admin.delete('again')
    harness.publish('again', 1)
    now = now + DAY
    t:is(expire(), 0, 'the new one is young, the old rows are not its own')
    while subject_admin.clear(500).more do end
    t:is(count('again'), 1, 'the old ones are cleared away')
end)

test:test('what was discarded while the clock stood ahead does not stay for as long', function(t)
    t:plan(2)
    now = now + 400 * DAY
    require('mts.txn').run(function()
        object.discard('m/ahead', 'late')
    end)
    now = now - 400 * DAY
    object.set_grace(60)
    object.trash_due(10)
    t:is(due_at('m/ahead'), now + 60, 'its grace from now on')
    t:is(object.set_grace(3600), 3600, 'the grace can be set again')
end)

test:test('all of it holds where sequences are no Lua numbers any more', function(t)
    t:plan(2 * 6)
    for index, last in ipairs(harness.HIGH) do
        harness.go_on_after(last)
        clear()
        local subject = 'high-' .. index
        local first = queues.create(subject, 3, {important = true})
        local second = harness.publish(subject, 2)
        local leased = queues.lease(subject, 5)
        now = now + DAY + 1
        t:is(expire(), 0, 'held back')
        t:is(hold.list()[1].messages, 5, 'all that is leased')
        delivery.ack(subject, 'q', leased.lease_id, {first, first + 1, first + 2})
        t:is(expire(), 3, 'the first extent goes')
        consumer.put(subject, 'q', {important = false})
        local deleted, named = retention.delete_older(1)
        t:is(deleted, 2, 'and the second')
        t:ok(named[2].sequence == second + 1, 'by its number')
        t:is(queues.ranges(subject), 0, 'with what was leased')
    end
end)

harness.finish(test)
