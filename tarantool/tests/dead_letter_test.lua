-- Dead letters: by reference, with their history, back where they came from or gone (rules 19 and 24).
package.path = require('fio').dirname(require('fio').abspath(arg[0])) .. '/?.lua;' .. package.path
local harness = require('harness')
local consumer = require('mts.consumer')
local consumer_tick = require('mts.consumer_tick')
local dead_letter = require('mts.dead_letter')
local delivery = require('mts.delivery')
local message = require('mts.message')
local object = require('mts.object')
local schema = require('mts.schema')
local spec_api = require('mts.spec_api')
local split = require('mts.split')
local subject_admin = require('mts.subject_admin')
local subjects = require('mts.subject')
local tap = require('tap')
local txn = require('mts.txn')
local upload_due = require('mts.upload_due')

local F, P = schema.message, schema.partition
local refusal = harness.refusal
local advance = harness.hold_clock()
local test = tap.test('dead letters')
test:plan(17)

local function queue(subject, options)
    options.mode = 'shared'
    consumer.put(subject, 'q', options)
end

local function rows(subject)
    return message.page(subject, 0, 1000).rows
end

local function refs(name)
    local row = box.space.object:get(name)
    return row and tonumber(row[schema.object.refs])
end

-- Hand out everything and let the lease end, so often.
local function fail(subject, times)
    local leased
    for _ = 1, times do
        leased = delivery.lease(subject, 'q', 1000, 10)
        advance(10000)
    end
    return leased
end

local function counters(subject)
    local lane = box.space.partition:get{subject, 0}
    return {tonumber(lane[P.messages]), tonumber(lane[P.bytes])}
end

local function headers_and_refs(t, subject)
    t:plan(9)
    local first = harness.publish(subject, 3, {headers = {kind = 'shared'}, content_type = 'a/b',
        own = {{1, {kind = 'own'}, 'c/d'}}})
    queue(subject, {max_deliver = 2})
    local leased = delivery.lease(subject, 'q', 3, 10)
    delivery.ack(subject, 'q', leased.lease_id, {first})
    advance(10000)
    local last_try = fail(subject, 1)
    t:is(#last_try.rows, 1, 'the last try')
    local empty = delivery.lease(subject, 'q', 3, 10)
    t:is_deeply({#empty.rows, empty.dead_lettered}, {0, 2}, 'then it is given up')
    local dead = rows(subject .. '.dlq')
    t:is(#dead, 2, 'each is a message of its own')
    local source, letter = message.get(first + 1), dead[1]
    t:is_deeply({letter[F.object_name], tonumber(letter[F.byte_from]), tonumber(letter[F.size]),
        letter[F.content_type]},
        {source[F.object_name], tonumber(source[F.byte_from]), 10, 'c/d'}, 'that points at the same bytes')
    local at = letter[F.headers]['mts-dlq-at']
    t:is_deeply(letter[F.headers], {kind = 'own', ['mts-dlq-subject'] = subject,
        ['mts-dlq-sequence'] = tostring(first + 1):match('%d+'), ['mts-dlq-partition'] = '0',
        ['mts-dlq-offset'] = '1', ['mts-dlq-durable'] = 'q', ['mts-dlq-reason'] = 'lease_ended',
        ['mts-dlq-deliveries'] = '2', ['mts-dlq-at'] = at}, 'and says where it came from')
    t:is(dead[2][F.headers].kind, 'shared', 'with the headers it had')
    t:is(refs(source[F.object_name]), 3, 'the payload is held by each')
    t:is_deeply({consumer.get(subject, 'q').lag, tonumber(consumer.get(subject, 'q').outstanding)}, {0, 0},
        'the durable is done with them')
    t:is_deeply(counters(subject .. '.dlq'), {2, 20}, 'and they are counted')
end

test:test('what was tried often enough goes to the dead letters', function(t)
    headers_and_refs(t, 'tries')
end)

test:test('giving back the last time does it at once', function(t)
    t:plan(4)
    local first = harness.publish('nack', 2)
    queue('nack', {max_deliver = 1, dead_letter = 'all.dlq'})
    local leased = delivery.lease('nack', 'q', 2, 10)
    local result = delivery.nack('nack', 'q', leased.lease_id, {first}, 60)
    t:is_deeply({result.nacked, result.dead_lettered}, {1, 1})
    t:is(rows('all.dlq')[1][F.headers]['mts-dlq-reason'], 'nacked', 'in the subject that the durable names')
    t:is(consumer.get('nack', 'q').lag, 1, 'the other is still leased')
    t:is(delivery.ack('nack', 'q', leased.lease_id, {first + 1}).acked, 1)
end)

test:test('the tick does it when nobody asks for work', function(t)
    t:plan(4)
    harness.publish('tick', 2)
    queue('tick', {max_deliver = 1})
    delivery.lease('tick', 'q', 2, 10)
    advance(9999)
    t:is(consumer_tick.tick(100).dead_lettered, 0, 'not before the lease ends')
    advance(1)
    t:is(consumer_tick.tick(1).dead_lettered, 1, 'some at a time')
    t:is(consumer_tick.tick(100).dead_lettered, 1, 'then the rest')
    t:is(consumer.get('tick', 'q').lag, 0)
end)

test:test('a limit raised or taken away meanwhile counts', function(t)
    t:plan(3)
    harness.publish('raised', 1)
    queue('raised', {max_deliver = 1})
    fail('raised', 1)
    consumer.put('raised', 'q', {max_deliver = 2})
    t:is(consumer_tick.tick(100).dead_lettered, 0, 'the tick sees it')
    t:is(#fail('raised', 1).rows, 1, 'it is tried again')
    consumer.put('raised', 'q', {max_deliver = 0})
    t:is(#fail('raised', 5).rows, 1, 'for ever')
end)

test:test('a dead-letter subject has no dead-letter subject', function(t)
    t:plan(2)
    harness.publish('self.dlq', 1)
    queue('self.dlq', {max_deliver = 1, dead_letter = 'other.dlq'})
    t:is(#fail('self.dlq', 5).rows, 1, 'redelivery goes on')
    t:is(consumer.get('self.dlq', 'q').dead_letter, nil)
end)

test:test('very many go some at a time, and none is lost', function(t)
    t:plan(4)
    local first = harness.publish('many', 1000)
    queue('many', {max_deliver = 1})
    local leased = delivery.lease('many', 'q', 1000, 10)
    local all = {}
    for i = 0, 999 do
        table.insert(all, first + i)
    end
    local result = delivery.nack('many', 'q', leased.lease_id, all)
    t:is_deeply({result.nacked, result.dead_lettered}, {1000, 500}, 'half of them')
    t:is(consumer.get('many', 'q').lag, 500)
    t:is(delivery.lease('many', 'q', 1000, 10).dead_lettered, 500, 'and the rest')
    t:is(consumer.get('many', 'q').lag, 0)
end)

test:test('dead letters go back where they came from', function(t)
    t:plan(9)
    local first = harness.publish('replay', 3, {headers = {kind = 'x'}, content_type = 'a/b'})
    queue('replay', {max_deliver = 1})
    fail('replay', 1)
    delivery.lease('replay', 'q', 3, 10)
    local name = message.get(first)[F.object_name]
    local letters = rows('replay.dlq')
    t:is(dead_letter.replay('replay', {letters[2][F.sequence], letters[2][F.sequence], 1}, 100).replayed, 1, 'one')
    local back = rows('replay')
    local new = back[#back]
    t:is_deeply({tonumber(new[F.count]), new[F.headers].kind, new[F.headers]['mts-dlq-subject'], new[F.content_type]},
        {1, 'x', nil, 'a/b'}, 'as it was')
    t:is_deeply({new[F.object_name], tonumber(new[F.byte_from])}, {name, tonumber(message.get(first + 1)[F.byte_from])},
        'by reference')
    t:is(refs(name), 4, 'nothing more and nothing less holds the payload')
    t:is(#rows('replay.dlq'), 2, 'it is no dead letter any more')
    local result = dead_letter.replay('replay.dlq', nil, 1)
    t:is_deeply({result.replayed, result.more}, {1, true}, 'some at a time')
    t:is_deeply({dead_letter.replay('replay.dlq', nil, 100).more, #rows('replay.dlq')}, {false, 0}, 'all')
    t:is(#delivery.lease('replay', 'q', 9, 10).rows, 3, 'they are delivered again')
    t:is_deeply(counters('replay.dlq'), {0, 0}, 'and counted out')
end)

test:test('a replayed message is again in its partition, as long as that takes messages', function(t)
    t:plan(3)
    subject_admin.put('lanes', {partitions = 4})
    for partition = 0, 3 do
        harness.append('lanes', partition)
    end
    queue('lanes', {max_deliver = 1})
    local function replayed()
        fail('lanes', 1)
        delivery.lease('lanes', 'q', 9, 10)
        local before = {}
        for _, row in ipairs(rows('lanes.dlq')) do
            table.insert(before, tonumber(row[F.headers]['mts-dlq-partition']))
        end
        dead_letter.replay('lanes', nil, 10)
        local found, after = rows('lanes'), {}
        for at = #found - #before + 1, #found do
            table.insert(after, tonumber(found[at][F.partition]))
        end
        return before, after
    end
    local before, after = replayed()
    t:is_deeply({before, after}, {{0, 1, 2, 3}, {0, 1, 2, 3}}, 'each where it was')
    subject_admin.put('lanes', {autopartitioning = {mode = 'up'}})
    txn.run(function()
        split.split(subjects.find('lanes'), 2, 64)
    end)
    before, after = replayed()
    t:is_deeply({#before, after[1], after[2], after[4]}, {4, 0, 1, 3}, 'the others of a split one too')
    t:isnt(after[3], 2, 'that one takes no more: another does')
end)

test:test('purged dead letters let go of their payloads', function(t)
    t:plan(5)
    local ticket = harness.ticket('purge', 4).upload
    local sequence = harness.commit(ticket.id, 4).sequence
    queue('purge', {max_deliver = 1})
    fail('purge', 1)
    consumer_tick.tick(10)
    t:is(refs(ticket.object_name), 2, 'a plain payload has an entry from its second reference on')
    t:is_deeply({dead_letter.purge('purge', 10).purged, refs(ticket.object_name)}, {1, 1}, 'purged')
    t:is(object.in_trash(ticket.object_name), false, 'the message still has it')
    box.begin()
    message.remove(message.locate(sequence), 'test')
    box.commit()
    t:is(object.in_trash(ticket.object_name), true, 'the last one lets go')
    box.begin()
    t:is(refusal(object.retain, ticket.object_name), 'payload_gone', 'and nobody gets it back')
    box.rollback()
end)

test:test('a payload stays as long as a dead letter points at it, whatever comes late for its upload', function(t)
    t:plan(5)
    local ticket = harness.ticket('late', 10).upload
    harness.commit(ticket.id, 10)
    queue('late', {max_deliver = 1})
    fail('late', 1)
    consumer_tick.tick(10)
    subject_admin.delete('late', harness.TIMES.put_grace)
    t:is(refs(ticket.object_name), 1, 'the message is gone, the dead letter is there')
    harness.commit(ticket.id, 10)
    t:is(object.in_trash(ticket.object_name), false, 'the event of the upload comes again')
    upload_due.settle(ticket.id, true)
    t:is(object.in_trash(ticket.object_name), false, 'the reconciler looks a last time')
    local moved = harness.ticket('moved.dlq', 10).upload
    harness.commit(moved.id, 10)
    dead_letter.replay('moved', nil, 10)
    upload_due.settle(moved.id, true)
    t:is(object.in_trash(moved.object_name), false, 'so it is with one that was replayed')
    dead_letter.purge('late', 10)
    t:is(object.in_trash(ticket.object_name), true, 'the dead letter was the last')
end)

test:test('messages without a ticket have payloads that are not ours', function(t)
    t:plan(3)
    spec_api.publish_message('foreign', 'their/object.json', {a = 'b'})
    queue('foreign', {max_deliver = 1})
    fail('foreign', 1)
    consumer_tick.tick(10)
    t:is(rows('foreign.dlq')[1][F.unverified], true, 'it stays marked')
    t:is(refs('their/object.json'), nil, 'nobody counts')
    dead_letter.purge('foreign', 10)
    t:is(object.in_trash('their/object.json'), false, 'and nobody deletes')
end)

test:test('a hole in the offsets does not raise the lag of who reads from the start', function(t)
    t:plan(2)
    harness.publish('hole', 4)
    queue('hole', {max_deliver = 1})
    consumer.put('hole.dlq', 'watch', {})
    fail('hole', 1)
    consumer_tick.tick(10)
    dead_letter.replay('hole', {rows('hole.dlq')[2][F.sequence]}, 10)
    t:is(consumer.get('hole.dlq', 'watch').lag, 3, 'from the start')
    consumer.ack('hole.dlq', 'watch', rows('hole.dlq')[3][F.sequence])
    t:is(consumer.get('hole.dlq', 'watch').lag, 0, 'and at the end')
end)

test:test('what somebody wrote there with a false origin makes no subject of it', function(t)
    local longest = ('a'):rep(240)
    local false_names = {'../elsewhere', longest .. 'a', longest .. 'a.dlq', longest .. '.dlq.dlq'}
    t:plan(#false_names + 2)
    for _, name in ipairs(false_names) do
        spec_api.publish_message('forged.dlq', 'their/object.json', {['mts-dlq-subject'] = name, a = 'b'})
        dead_letter.replay('forged', nil, 10)
        t:is(box.space.subject:get(name), nil, 'not there')
    end
    t:is(#rows('forged'), #false_names, 'but in the subject that the dead-letter subject is named after')
    spec_api.publish_message('forged.dlq', 'their/object.json', {['mts-dlq-subject'] = longest .. '.dlq'})
    dead_letter.replay('forged', nil, 10)
    t:is(#rows(longest .. '.dlq'), 1, 'the longest name that can be reached is one')
end)

test:test('a purge of nothing is nothing', function(t)
    t:plan(2)
    t:is_deeply(dead_letter.purge('never-seen', 10), {purged = 0, more = false})
    t:is_deeply(dead_letter.replay('never-seen', nil, 10), {replayed = 0, more = false})
end)

for _, start in ipairs(harness.HIGH) do
    test:test('what was tried often enough goes to the dead letters at ' .. tostring(start), function(t)
        harness.go_on_after(start)
        headers_and_refs(t, 'high' .. tostring(start):match('%d+'))
    end)
end

test:test('a subject has the dead letters of all its durables, wherever they go, and nobody else\'s', function(t)
    t:plan(11)
    local scan = require('mts.scan')
    local function lose(subject, durable, options)
        options.mode, options.max_deliver = 'shared', 1
        consumer.put(subject, durable, options)
        delivery.lease(subject, durable, 1000, 10)
        advance(10000)
        consumer_tick.tick(1000)
    end
    harness.publish('theirs', 3)
    harness.publish('ours', 2)
    lose('theirs', 'q', {dead_letter = 'common.dlq'})
    lose('ours', 'q', {dead_letter = 'common.dlq'})
    lose('ours', 'plain', {})
    local function origins(page)
        local found = {}
        for _, row in ipairs(page.rows) do
            table.insert(found, row[F.headers]['mts-dlq-durable'])
        end
        return table.concat(found, ' ')
    end
    t:is_deeply(dead_letter.subjects('ours'), {'ours.dlq', 'common.dlq'}, 'where they are')
    local page = dead_letter.page('ours', 0, 10)
    t:is(origins(page), 'q q plain plain', 'in the order of their sequences')
    local first = dead_letter.page('ours', 0, 3)
    t:is(origins(first), 'q q plain', 'a page of them')
    t:is(origins(dead_letter.page('ours', first.next_sequence, 3)), 'plain', 'and the next')
    t:is(#dead_letter.page('common.dlq', 0, 10).rows, 5, 'the place itself has those of all')
    local foreign = rows('common.dlq')[1][F.sequence]
    t:is(dead_letter.replay('ours', {foreign, page.rows[1][F.sequence]}, 10).replayed, 1, 'only its own are replayed')
    scan.MOST_ROWS = 1
    t:is(origins(dead_letter.page('ours', 0, 10)), '', 'a look that finds none yet')
    local purged = dead_letter.purge('ours', 2)
    t:ok(purged.purged > 0, 'does not keep them from being found')
    scan.MOST_ROWS = 1000
    repeat
        local more = dead_letter.purge('ours', 2).more
    until not more
    t:is(#dead_letter.page('ours', 0, 10).rows, 0, 'all of its own are purged')
    t:is(#rows('common.dlq'), 3, 'the others stay')
    t:is(dead_letter.purge('ours', 2).purged, 0, 'and are not found')
end)

harness.finish(test)
