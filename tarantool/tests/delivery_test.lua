-- Shared durables: leases, redelivery, and what of it is kept (rule 18).
package.path = require('fio').dirname(require('fio').abspath(arg[0])) .. '/?.lua;' .. package.path
local harness = require('harness')
local clock = require('mts.clock')
local consumer = require('mts.consumer')
local consumer_tick = require('mts.consumer_tick')
local delivery = require('mts.delivery')
local queues = require('queues')
local schema = require('mts.schema')
local tap = require('tap')

local F = schema.message
local refusal = harness.refusal
local advance = harness.hold_clock()
local queue, lease, given, ranges = queues.create, queues.lease, queues.given, queues.ranges
local test = tap.test('delivery')
test:plan(17)

local function cycle(t, subject)
    t:plan(16)
    local first = queue(subject, 6)
    local one, two = lease(subject, 4), lease(subject, 4)
    t:is_deeply({given(one, first), given(two, first)}, {{0, 1, 2, 3}, {4, 5}}, 'no message is leased twice')
    t:is(ranges(subject), 2, 'a range each')
    t:is(consumer.get(subject, 'q').lag, 6, 'leased is not acked')
    t:is(#lease(subject, 4).rows, 0, 'there is no more')
    t:is(lease(subject, 4).next_due_in_ms, 30000, 'until a lease ends')
    t:is(delivery.ack(subject, 'q', one.lease_id, {first + 1, first + 2}).acked, 2, 'part of a range')
    local described = consumer.get(subject, 'q')
    t:is_deeply({described.lag, tonumber(described.outstanding)}, {4, 4}, 'is done')
    t:ok(described.last_sequence == first - 1, 'the first holds the position')
    delivery.ack(subject, 'q', one.lease_id, {first})
    t:ok(consumer.get(subject, 'q').last_sequence == first + 2, 'now up to the next that is left')
    t:is(refusal(delivery.ack, subject, 'q', one.lease_id, {first + 3, first + 4}), 'lease_lost', "another's lease")
    t:is(refusal(delivery.ack, subject, 'q', one.lease_id, {first + 3, first + 1}), 'lease_lost', 'acked already')
    t:is(consumer.get(subject, 'q').lag, 3, 'all or nothing')
    advance(30000)
    local again = lease(subject, 10, 60)
    t:is_deeply(given(again, first), {3, 4, 5}, 'what was not acked comes again')
    t:is(tonumber(again.tries[1][3]), 2, 'as a second try')
    t:is(refusal(delivery.ack, subject, 'q', one.lease_id, {first + 3}), 'lease_lost', 'the old lease is void')
    delivery.ack(subject, 'q', again.lease_id, {first + 5, first + 3, first + 4, first + 3})
    described = consumer.get(subject, 'q')
    t:is_deeply({described.lag, ranges(subject), described.last_sequence == first + 5}, {0, 0, true}, 'all is done')
end

test:test('what is leased and not acked comes again', function(t)
    cycle(t, 'cycle')
end)

test:test('a lease that has ended may ack until somebody else has the message', function(t)
    t:plan(2)
    local first = queue('late', 2)
    local leased = lease('late', 2)
    advance(31000)
    t:is(delivery.ack('late', 'q', leased.lease_id, {first}).acked, 1, 'in time enough')
    lease('late', 2)
    t:is(refusal(delivery.ack, 'late', 'q', leased.lease_id, {first + 1}), 'lease_lost', 'too late')
end)

test:test('given back, a message waits for its delay', function(t)
    t:plan(7)
    local first = queue('nack', 3)
    local leased = lease('nack', 3)
    t:is(delivery.nack('nack', 'q', leased.lease_id, {first + 1}, 10).nacked, 1, 'one of three')
    local none = lease('nack', 3)
    t:is_deeply({#none.rows, none.next_due_in_ms}, {0, 10000}, 'it is not due yet')
    t:is(refusal(delivery.ack, 'nack', 'q', leased.lease_id, {first + 1}), 'lease_lost', 'nor leased')
    advance(10000)
    t:is_deeply(given(lease('nack', 3), first), {1}, 'now it is')
    delivery.nack('nack', 'q', leased.lease_id, {first, first + 2})
    local both = lease('nack', 1)
    t:is_deeply(given(both, first), {0}, 'without a delay at once')
    t:is(both.next_due_in_ms, 0, 'and there is more')
    t:is(consumer.get('nack', 'q').lag, 3, 'nothing is lost')
end)

test:test('given back untried, a message has not been tried', function(t)
    t:plan(6)
    local first = queue('untried', 2, {max_deliver = 1})
    local leased = lease('untried', 2)
    local given_back = delivery.nack('untried', 'q', leased.lease_id, {first + 1}, 10, true)
    t:is_deeply({given_back.nacked, given_back.dead_lettered}, {1, 0}, 'its only try is not used up')
    t:is(lease('untried', 2).next_due_in_ms, 10000, 'it waits for its delay')
    t:is(refusal(delivery.nack, 'untried', 'q', leased.lease_id, {first + 1}, 0, true), 'lease_lost', 'once')
    advance(10000)
    local again = lease('untried', 2)
    t:is_deeply(given(again, first), {1}, 'then it comes')
    t:is(tonumber(again.tries[1][3]), 1, 'as a first try')
    t:is(delivery.nack('untried', 'q', again.lease_id, {first + 1}).dead_lettered, 1, 'which can be used up')
    delivery.ack('untried', 'q', leased.lease_id, {first})
end)

test:test('a lease is extended, all of it or some messages', function(t)
    t:plan(7)
    local first = queue('extend', 4)
    local leased = lease('extend', 4, 10)
    t:is(delivery.extend('extend', 'q', leased.lease_id, 20).extended, 4, 'all')
    local ends = delivery.extend('extend', 'q', leased.lease_id, 60, {first + 1}).expires_at_ms
    t:is(ends, clock.steady_ms() + 60000, 'from now on')
    advance(20000)
    t:is_deeply(given(lease('extend', 9, 10), first), {0, 2, 3}, 'the others come again')
    t:is(refusal(delivery.extend, 'extend', 'q', leased.lease_id, 60, {first}), 'lease_lost', 'what is lost')
    t:is(delivery.extend('extend', 'q', leased.lease_id, 60).extended, 1, 'what is left')
    t:is(refusal(delivery.extend, 'extend', 'q', 'no-such-lease', 60), 'lease_lost', 'a lease of nobody')
    t:is(delivery.ack('extend', 'q', leased.lease_id, {first + 1}).acked, 1, 'it was kept')
end)

test:test('what was never leased cannot be acked', function(t)
    t:plan(7)
    local first = queue('never', 2)
    harness.publish('never-other', 1)
    local between = first + 2
    harness.publish('never', 1)
    local leased = lease('never', 1)
    t:is(refusal(delivery.ack, 'never', 'q', leased.lease_id, {first + 1}), 'lease_lost', 'not handed out')
    local all = lease('never', 9)
    t:is(refusal(delivery.ack, 'never', 'q', all.lease_id, {between}), 'lease_lost', 'of another subject')
    t:is(refusal(delivery.ack, 'never', 'q', all.lease_id, {first + 1000}), 'lease_lost', 'beyond the end')
    t:is(refusal(delivery.ack, 'never', 'q', all.lease_id, {}), 'bad_request', 'nothing')
    t:is(refusal(delivery.ack, 'never', 'nobody', all.lease_id, {first}), 'unknown_durable', 'of nobody')
    consumer.put('never', 'ordered', {})
    t:is(refusal(delivery.lease, 'never', 'ordered', 1, 1), 'mode_mismatch', 'of an ordered durable')
    t:is(consumer.get('never', 'q').lag, 3, 'nothing changed')
end)

test:test('leases end in time after a restart with the clock set back', function(t)
    t:plan(2)
    local first = queue('back', 2)
    lease('back', 2, 30)
    advance(-3600 * 1000)
    t:is(#lease('back', 2).rows, 0, 'leased')
    package.loaded['mts.delivery'] = nil
    local restarted = require('mts.delivery')
    t:is_deeply(given(restarted.lease('back', 'q', 2, 30), first), {0, 1}, 'due, not leased for an hour')
    advance(3600 * 1000)
end)

test:test('after a restart leases of before are compared with the clock some at a time', function(t)
    t:plan(3)
    local first = queue('long', 1101, {max_deliver = 1})
    for _ = 1, 1100 do
        lease('long', 1, 3600)
    end
    advance(1000)
    lease('long', 1, 7200)
    advance(-500)
    package.loaded['mts.delivery'], package.loaded['mts.delivery_give_up'] = nil, nil
    local give_up = require('mts.delivery_give_up')
    local gone = {{give_up.due(100)}, {give_up.due(100)}, {give_up.due(100)}, {give_up.due(100)}}
    t:is_deeply(gone, {{0, true}, {0, true}, {1, true}, {0, false}}, 'by the tick, which says that there is more')
    consumer.seek('long', 'q', first)
    consumer.put('long', 'q', {max_deliver = 0})
    for _ = 1, 1100 do
        lease('long', 1, 3600)
    end
    advance(1000)
    lease('long', 1, 7200)
    advance(-500)
    package.loaded['mts.delivery'] = nil
    local restarted, calls, leased = require('mts.delivery'), 0
    repeat
        leased, calls = restarted.lease('long', 'q', 1, 30), calls + 1
    until #leased.rows > 0 or leased.next_due_in_ms > 0 or calls == 10
    t:is(calls, 3, 'by leases, which are asked again at once')
    t:is_deeply(given(leased, first), {1100}, 'until what was granted in the future is found')
end)

test:test('a lease lasts as long as the durable says, when it does not say', function(t)
    t:plan(1)
    queue('wait', 1, {ack_wait = 7})
    t:is(delivery.lease('wait', 'q', 1).expires_at_ms, clock.steady_ms() + 7000)
end)

test:test('a durable that begins in the middle of a pack hands out the rest', function(t)
    t:plan(2)
    local first = harness.publish('middle', 4)
    consumer.put('middle', 'q', {mode = 'shared', start = first + 2})
    t:is(consumer.get('middle', 'q').lag, 2)
    t:is_deeply(given(lease('middle', 9), first), {2, 3})
end)

test:test('a lease that finds nothing writes nothing', function(t)
    t:plan(2)
    queue('idle', 1)
    lease('idle', 1)
    harness.publish('idle-other', 1)
    local before = box.info.lsn
    t:is(lease('idle', 1).lease_id, nil, 'no lease')
    t:is(box.info.lsn, before, 'no write')
end)

test:test('who waits is woken by what is given back, by a move and by the end of the subject', function(t)
    t:plan(3)
    local changes = require('mts.changes')
    local first = queue('wake', 1)
    local leased = lease('wake', 1)
    local cursor = changes.wait('', 0, 0)
    delivery.nack('wake', 'q', leased.lease_id, {first}, 5)
    local woken = changes.wait(cursor.boot, cursor.cursor, 1)
    t:is_deeply(woken.names, {'wake/q'}, 'given back')
    consumer.seek('wake', 'q', first)
    woken = changes.wait(cursor.boot, woken.cursor, 1)
    t:is_deeply(woken.names, {'wake/q'}, 'moved')
    require('mts.subject_admin').delete('wake')
    t:is_deeply(changes.wait(cursor.boot, woken.cursor, 1).names, {'wake/q'}, 'gone')
end)

test:test('workers at the same time never hold the same message', function(t)
    t:plan(4)
    local fiber = require('fiber')
    local first = queue('crowd', 300)
    local held, acked, twice, working = {}, 0, 0, 8
    local function work()
        while acked < 300 do
            local leased = lease('crowd', 7, 1000)
            for _, sequence in ipairs(given(leased, first)) do
                twice = twice + (held[sequence] and 1 or 0)
                held[sequence] = true
            end
            fiber.yield()
            for _, sequence in ipairs(given(leased, first)) do
                if math.random() < 0.3 then
                    held[sequence] = nil
                    delivery.nack('crowd', 'q', leased.lease_id, {first + sequence})
                else
                    local done = delivery.ack('crowd', 'q', leased.lease_id, {first + sequence}).acked
                    acked = acked + done
                end
            end
        end
        working = working - 1
    end
    consumer.put('crowd', 'q', {max_deliver = 0})
    for _ = 1, 8 do
        fiber.create(work)
    end
    local deadline = fiber.clock() + 30
    while working > 0 and fiber.clock() < deadline do
        fiber.sleep(0.005)
    end
    t:is(working, 0, 'all work was done')
    t:is(twice, 0, 'by one at a time')
    t:is(acked, 300, 'each message once')
    t:is_deeply({consumer.get('crowd', 'q').lag, ranges('crowd')}, {0, 0}, 'nothing is left')
end)

test:test('many partitions are one queue', function(t)
    t:plan(3)
    for i = 1, 6 do
        harness.append('lanes', i % 3)
    end
    consumer.put('lanes', 'q', {mode = 'shared'})
    local leased = lease('lanes', 4)
    t:is(#leased.rows, 4)
    delivery.ack('lanes', 'q', leased.lease_id, {leased.rows[2][F.sequence]})
    local described = consumer.get('lanes', 'q')
    t:is(described.lag, 5)
    t:is_deeply({described.partitions[1].lag, described.partitions[2].lag, described.partitions[3].lag}, {1, 0, 1},
        'of each partition what was never handed out')
end)

test:test('the tick leaves alone what may be tried again', function(t)
    t:plan(2)
    queue('tick', 2, {max_deliver = 2})
    lease('tick', 2)
    advance(31000)
    t:is(consumer_tick.tick(10).dead_lettered, 0)
    t:is(#lease('tick', 2).rows, 1)
end)

for _, start in ipairs(harness.HIGH) do
    test:test('what is leased and not acked comes again at ' .. tostring(start), function(t)
        harness.go_on_after(start)
        cycle(t, 'high' .. tostring(start):match('%d+'))
    end)
end

harness.finish(test)
