-- What is kept about a shared durable is a floor and ranges (rule 18): cut, joined, moved, removed.
package.path = require('fio').dirname(require('fio').abspath(arg[0])) .. '/?.lua;' .. package.path
local harness = require('harness')
local consumer = require('mts.consumer')
local delivery = require('mts.delivery')
local message = require('mts.message')
local schema = require('mts.schema')
local queues = require('queues')
local tap = require('tap')

local D, F = schema.delivery, schema.message
local refusal = harness.refusal
local advance = harness.hold_clock()
local queue, lease, given, ranges = queues.create, queues.lease, queues.given, queues.ranges
local test = tap.test('ranges')
test:plan(7)

test:test('ranges stay few, whatever the order of acks', function(t)
    t:plan(5)
    local first = queue('few', 100)
    harness.publish('few-other', 5)
    harness.publish('few', 100)
    local leased = lease('few', 200)
    t:is(ranges('few'), 1, 'one for all')
    for i = 0, 98, 2 do
        delivery.ack('few', 'q', leased.lease_id, {first + i})
    end
    t:is(ranges('few'), 50, 'one for each hole')
    local total = 0
    for _, row in box.space.delivery:pairs{'q', 'few'} do
        total = total + row[D.count]
    end
    t:is(tonumber(total), 150, 'their counts are right')
    for i = 97, 1, -2 do
        delivery.ack('few', 'q', leased.lease_id, {first + i})
    end
    t:is(ranges('few'), 1, 'one again')
    advance(30000)
    local again = lease('few', 200)
    for _, row in ipairs(again.rows) do
        for index = 0, row[F.count] - 1 do
            delivery.nack('few', 'q', again.lease_id, {row[F.sequence] - index})
        end
    end
    lease('few', 200)
    t:is(ranges('few'), 1, 'neighbours that come again together are one')
end)

test:test('random acks leave exactly what was not acked', function(t)
    t:plan(3)
    math.randomseed(7)
    local first = queue('random', 50)
    harness.publish('random-other', 3)
    harness.publish('random', 50)
    local leased = lease('random', 100)
    local sequences = given(leased, first)
    local left = {}
    while #sequences > 20 do
        local picks = {}
        for _ = 1, math.random(1, 5) do
            table.insert(picks, first + table.remove(sequences, math.random(#sequences)))
        end
        delivery.ack('random', 'q', leased.lease_id, picks)
    end
    for _, sequence in ipairs(sequences) do
        table.insert(left, sequence)
    end
    t:is(consumer.get('random', 'q').lag, #left, 'the lag')
    t:ok(consumer.get('random', 'q').last_sequence < first + left[1], 'the position is before the first')
    advance(30000)
    t:is_deeply(given(lease('random', 100), first), left, 'they come again')
end)

test:test('a durable can be moved, and what was leased is void', function(t)
    t:plan(6)
    local first = queue('seek', 4)
    local leased = lease('seek', 3)
    delivery.ack('seek', 'q', leased.lease_id, {first + 1})
    t:is(consumer.seek('seek', 'q', first + 2).lag, 2, 'to the third')
    t:is(refusal(delivery.ack, 'seek', 'q', leased.lease_id, {first}), 'lease_lost', 'the old lease')
    t:is_deeply(given(lease('seek', 9), first), {2, 3}, 'is handed out anew')
    t:is(consumer.seek('seek', 'q', 0).lag, 4, 'to the start')
    t:is(consumer.seek('seek', 'q', first + 4).lag, 0, 'to the end')
    t:is(ranges('seek'), 0, 'nothing is left behind')
end)

test:test('moving one with very many ranges takes several transactions', function(t)
    t:plan(3)
    local first = queue('long', 1300)
    for _ = 1, 2 do
        local leased, odd = lease('long', 650), {}
        for i, sequence in ipairs(given(leased, 0ULL)) do
            if i % 2 == 1 then
                table.insert(odd, sequence)
            end
        end
        delivery.ack('long', 'q', leased.lease_id, odd)
    end
    t:is(ranges('long'), 650, 'there are many')
    t:is(consumer.seek('long', 'q', first + 1299).lag, 1, 'moved')
    t:is_deeply({ranges('long'), given(lease('long', 9), first)}, {0, {1299}}, 'nothing is left behind')
end)

test:test('moving that stops half-way forgets nothing', function(t)
    t:plan(3)
    local first = queue('half', 1300)
    local kept = {}
    for _ = 1, 2 do
        local leased, odd = lease('half', 650), {}
        for i, sequence in ipairs(given(leased, first)) do
            table.insert(i % 2 == 1 and odd or kept, i % 2 == 1 and first + sequence or sequence)
        end
        delivery.ack('half', 'q', leased.lease_id, odd)
    end
    local seen = 0
    local function stop()
        seen = seen + 1
        if seen == 550 then
            error('stopped')
        end
    end
    box.space.delivery:on_replace(stop)
    t:is(pcall(consumer.seek, 'half', 'q', first), false, 'stopped in the second transaction')
    box.space.delivery:on_replace(nil, stop)
    t:is(ranges('half'), 150, 'the first one holds')
    advance(30000)
    local owed = {}
    repeat
        local leased = lease('half', 1000, 60)
        for _, sequence in ipairs(given(leased, first)) do
            owed[sequence] = true
        end
    until #leased.rows == 0
    local missing = 0
    for _, sequence in ipairs(kept) do
        missing = missing + (owed[sequence] and 0 or 1)
    end
    t:is(missing, 0, 'everything that was not acked is handed out')
end)

test:test('neighbours that were tried differently often stay apart', function(t)
    t:plan(2)
    local first = queue('apart', 2)
    local leased = lease('apart', 1)
    delivery.nack('apart', 'q', leased.lease_id, {first})
    leased = lease('apart', 2)
    t:is_deeply(given(leased, first), {0, 1}, 'leased together')
    t:is_deeply({tonumber(leased.tries[1][3]), tonumber(leased.tries[2][3])}, {2, 1}, 'each with its tries')
end)

test:test('what is removed is no longer owed', function(t)
    t:plan(6)
    local first = queue('removed', 3)
    local middle = harness.publish('removed', 3)
    harness.publish('removed', 3)
    local leased = lease('removed', 8)
    delivery.ack('removed', 'q', leased.lease_id, {middle})
    box.begin()
    message.remove(message.locate(middle), 'test')
    box.commit()
    t:is(tonumber(consumer.get('removed', 'q').outstanding), 5, 'the rest is')
    t:is(refusal(delivery.ack, 'removed', 'q', leased.lease_id, {middle + 1}), 'lease_lost', 'it is gone')
    t:is(delivery.ack('removed', 'q', leased.lease_id, {first + 1, first + 6}).acked, 2, 'the others are there')
    advance(30000)
    t:is_deeply(given(lease('removed', 9), first), {0, 2, 7, 8}, 'and come again')
    queue('removed-middle', 2)
    middle = harness.publish('removed-middle', 2)
    harness.publish('removed-middle', 2)
    leased = lease('removed-middle', 9)
    box.begin()
    message.remove(message.locate(middle), 'test')
    box.commit()
    t:is(tonumber(consumer.get('removed-middle', 'q').outstanding), 4, 'from the middle of a range')
    delivery.ack('removed-middle', 'q', leased.lease_id, {middle - 2, middle - 1, middle + 2, middle + 3})
    t:is_deeply({ranges('removed-middle'), consumer.get('removed-middle', 'q').lag}, {0, 0}, 'the counts are right')
end)

harness.finish(test)
