-- Ordered durables with one reader: positions (rule 17), lag, seek, and what a durable is made of.
package.path = require('fio').dirname(require('fio').abspath(arg[0])) .. '/?.lua;' .. package.path
local harness = require('harness')
local consumer = require('mts.consumer')
local consumer_read = require('mts.consumer_read')
local consumer_tick = require('mts.consumer_tick')
local message = require('mts.message')
local schema = require('mts.schema')
local spec_api = require('mts.spec_api')
local subject_admin = require('mts.subject_admin')
local tap = require('tap')

local F = schema.message
local refusal = harness.refusal
local test = tap.test('consumers')
test:plan(21)

test:test('a durable is made once, with one mode for life', function(t)
    t:plan(9)
    local first = consumer.put('made', 'd', {})
    t:is(first.created, true, 'made')
    t:is_deeply({first.consumer.mode, first.consumer.max_deliver, first.consumer.ack_wait,
        first.consumer.dead_letter, first.consumer.important}, {'ordered', 5, 30, 'made.dlq', false}, 'the defaults')
    local again = consumer.put('made', 'd', {important = true, start = 1, filter = {{header = 'a', op = 'equals',
        value = 'b'}}})
    t:is(again.created, false, 'the second time it exists')
    t:is_deeply({again.consumer.important, again.consumer.filter[1].header}, {true, 'a'}, 'and its settings change')
    t:is(consumer.put('made', 'd', {filter = {}}).consumer.filter, nil, 'an empty filter is none')
    t:is(consumer.get('made', 'd').important, true, 'what was not given stays')
    t:is(refusal(consumer.put, 'made', 'd', {mode = 'shared'}), 'mode_mismatch', 'the mode does not change')
    t:is(refusal(consumer.put, 'made', 'e', {mode = 'other'}), 'bad_request', 'there are two modes')
    t:is(consumer.get('made', 'd').partitions[1], nil, 'no partition before the first message')
end)

test:test('bad settings and names are refused and leave nothing', function(t)
    local cases = {
        {'d', {max_deliver = -1}}, {'d', {max_deliver = 1.5}}, {'d', {ack_wait = 0}}, {'d', {important = 'yes'}},
        {'d', {dead_letter = 'elsewhere'}}, {'d', {filter = 'a=b'}}, {'d', {filter = {{header = '', op = 'equals',
        value = 'x'}}}}, {'d', {filter = {{header = 'a', op = 'like', value = 'x'}}}}, {'a/b', {}}, {'', {}},
        {('x'):rep(256), {}}, {'.', {}},
    }
    t:plan(#cases + 1)
    for _, case in ipairs(cases) do
        t:is(refusal(consumer.put, 'bad', case[1], case[2]), 'bad_request', case[1]:sub(1, 5))
    end
    t:is(box.space.subject:get('bad'), nil, 'no subject was made')
end)

test:test('an unknown durable is said to be unknown', function(t)
    t:plan(6)
    harness.publish('known', 1)
    for _, fn in ipairs{consumer.get, consumer.delete} do
        t:is(refusal(fn, 'known', 'nobody'), 'unknown_durable')
    end
    t:is(refusal(consumer.ack, 'known', 'nobody', 1), 'unknown_durable')
    t:is(refusal(consumer.seek, 'known', 'nobody', 1), 'unknown_durable')
    t:is(refusal(consumer_read.read, 'known', 'nobody', {limit = 1}), 'unknown_durable')
    t:is(#consumer.list('known', '', 10).consumers, 0, 'and is not listed')
end)

test:test('a shared durable has no cumulative position', function(t)
    t:plan(4)
    local first = harness.publish('mixed', 1)
    consumer.put('mixed', 'queue', {mode = 'shared'})
    t:is(refusal(consumer.ack, 'mixed', 'queue', first), 'mode_mismatch')
    t:is(refusal(consumer_read.read, 'mixed', 'queue', {limit = 1}), 'mode_mismatch')
    t:is(refusal(consumer.update, 'queue', 'mixed', first), 'mode_mismatch')
    t:is(tonumber(consumer.get('mixed', 'queue').lag), 1, 'nothing moved')
end)

local function positions(t, subject)
    t:plan(14)
    local first = harness.publish(subject, 5)
    harness.publish(subject .. '-other', 3)
    local last = harness.publish(subject, 5) + 4
    consumer.put(subject, 'd', {})
    local page = consumer_read.read(subject, 'd', {limit = 7})
    t:is(tonumber(page.rows[2][F.count]), 2, 'a page is cut at its limit')
    t:ok(page.next_sequence == last - 2, 'and says where to go on')
    t:ok(consumer.get(subject, 'd').last_sequence < first, 'reading moves nothing')
    local behind = consumer_read.read(subject, 'd', {limit = 7, after = page.next_sequence - 1})
    t:ok(behind.rows[1][F.sequence] == last, '`after` reads on before the ack')
    t:ok(consumer.ack(subject, 'd', first + 1).last_sequence == first + 1, 'an ack in the middle of a pack')
    t:ok(consumer.ack(subject, 'd', first).last_sequence == first + 1, 'it never moves back')
    t:is(consumer.get(subject, 'd').lag, 8, 'the lag')
    t:is(tonumber(consumer.get(subject, 'd').partitions[1].offset), 1, 'the offset of what was acked last')
    t:is(refusal(consumer.ack, subject, 'd', last + 1), 'beyond_end', 'nothing lies behind the end')
    consumer.ack(subject, 'd', last)
    t:is(consumer.get(subject, 'd').lag, 0, 'all is acked')
    t:ok(consumer.seek(subject, 'd', last).last_sequence == last - 1, 'seek moves back')
    t:is(consumer.get(subject, 'd').lag, 1, 'and there is something to read')
    t:is(refusal(consumer.seek, subject, 'd', last + 2), 'beyond_end', 'but not beyond the end')
    t:is(consumer.seek(subject, 'd', 0).lag, 10, 'everything from the start')
end

test:test('positions hold', function(t)
    positions(t, 'positions')
end)

test:test('`after` is void when the durable was moved', function(t)
    t:plan(2)
    local first = harness.publish('moved', 3)
    consumer.put('moved', 'd', {})
    local page = consumer_read.read('moved', 'd', {limit = 3})
    local after = {limit = 3, after = first + 2, fence = page.fence}
    t:is(#consumer_read.read('moved', 'd', after).rows, 0, 'all was read')
    consumer.seek('moved', 'd', first)
    t:is(#consumer_read.read('moved', 'd', after).rows, 1, 'and is read again')
end)

test:test('what was read before a durable was moved cannot be acked any more', function(t)
    t:plan(7)
    local first = harness.publish('fenced', 3)
    consumer.put('fenced', 'd', {})
    local page = consumer_read.read('fenced', 'd', {limit = 3})
    t:ok(consumer.ack('fenced', 'd', first, page.fence).last_sequence == first, 'an ack moves the position')
    t:ok(consumer.ack('fenced', 'd', first + 1, page.fence).last_sequence == first + 1, 'and leaves the fence')
    consumer.seek('fenced', 'd', first)
    t:is(refusal(consumer.ack, 'fenced', 'd', first + 2, page.fence), 'position_moved', 'a seek does not')
    t:is(consumer.get('fenced', 'd').lag, 3, 'nothing was undone')
    page = consumer_read.read('fenced', 'd', {limit = 3})
    consumer.delete('fenced', 'd')
    consumer.put('fenced', 'd', {})
    t:is(refusal(consumer.ack, 'fenced', 'd', first + 2, page.fence), 'position_moved', 'nor one made again')
    t:is(consumer.get('fenced', 'd').lag, 3, 'which begins at its start')
    t:ok(consumer.ack('fenced', 'd', first + 2).last_sequence == first + 2, 'who shows no fence is believed')
end)

test:test('a durable of the first schema is read on and acked as others are', function(t)
    t:plan(3)
    local first = harness.publish('first-schema', 3)
    box.space.consumers:replace{'old', 'first-schema', first - 1}
    local page = consumer_read.read('first-schema', 'old', {limit = 2})
    local behind = consumer_read.read('first-schema', 'old', {limit = 2, after = first + 1, fence = page.fence})
    t:ok(behind.rows[1][F.sequence] == first + 2 and tonumber(behind.rows[1][F.count]) == 1, 'behind what was read')
    t:ok(consumer.ack('first-schema', 'old', first, page.fence).last_sequence == first, 'acked')
    t:ok(consumer.ack('first-schema', 'old', first + 1, page.fence).last_sequence == first + 1, 'and again')
end)

test:test('a durable begins where it is told to', function(t)
    t:plan(5)
    local first = harness.publish('begin', 3)
    t:is(consumer.put('begin', 'all', {}).consumer.lag, 3, 'at the first')
    t:is(consumer.put('begin', 'last', {start = first + 2}).consumer.lag, 1, 'at the last')
    t:is(consumer.put('begin', 'new', {start = first + 3}).consumer.lag, 0, 'behind it')
    t:is(refusal(consumer.put, 'begin', 'later', {start = first + 4}), 'beyond_end', 'not later')
    t:is(consumer.put('begin', 'last', {start = 1}).consumer.lag, 1, 'an existing one stays where it is')
end)

test:test('the lag counts partitions by their own positions', function(t)
    t:plan(5)
    local sequences = {}
    for i = 1, 6 do
        sequences[i] = harness.append('lanes', i % 3)
    end
    consumer.put('lanes', 'd', {})
    local described = consumer.get('lanes', 'd')
    t:is_deeply({described.lag, described.partitions[1].lag, described.partitions[3].lag}, {6, 2, 2}, 'all of them')
    consumer.ack('lanes', 'd', sequences[4])
    described = consumer.get('lanes', 'd')
    t:is_deeply({described.lag, described.partitions[1].lag, described.partitions[2].lag,
        described.partitions[3].lag}, {2, 1, 0, 1}, 'after an ack')
    t:is_deeply({described.partitions[1].offset, described.partitions[2].offset}, {0, 1}, 'offsets of each')
    t:is(spec_api.get_new_messages_count('lanes', 'd'), 2, 'the specification counts the same')
    t:is(spec_api.check_new_messages('lanes', 'd').new_count, 2, 'in both ways')
end)

test:test('the specification\'s update makes an ordered durable and never moves back', function(t)
    t:plan(5)
    local first = harness.publish('spec', 3)
    spec_api.update_consumer_position('d', 'spec', first + 1)
    t:is(consumer.get('spec', 'd').mode, 'ordered')
    spec_api.update_consumer_position('d', 'spec', first)
    t:ok(spec_api.get_consumer_position('d', 'spec') == first + 1)
    t:is(consumer.get('spec', 'd').lag, 1)
    t:is(refusal(spec_api.update_consumer_position, 'd', 'spec', first + 3), 'bad_request', 'not beyond the end')
    box.space.consumers:replace{'old', 'spec', first}
    spec_api.update_consumer_position('old', 'spec', first + 2)
    t:is_deeply({consumer.get('spec', 'old').mode, consumer.get('spec', 'old').lag}, {'ordered', 0},
        'also one of the first schema')
end)

test:test('durables are listed by name, page by page', function(t)
    t:plan(4)
    for _, name in ipairs{'c', 'a', 'b'} do
        consumer.put('list', name, {})
        consumer.put('list2', name, {})
    end
    local page = consumer.list('list', '', 2)
    t:is_deeply({page.consumers[1].durable, page.consumers[2].durable, page.more}, {'a', 'b', true})
    page = consumer.list('list', 'b', 2)
    t:is_deeply({page.consumers[1].durable, page.more}, {'c', false})
    t:is(#consumer.list('list', 'c', 2).consumers, 0)
    t:is(consumer.list('list', '', 3).more, false, 'a page that holds the last has none behind it')
end)

test:test('a list of durables with many partitions comes in shorter pages', function(t)
    t:plan(2)
    subject_admin.put('wide', {partitions = 256})
    for i = 1, 9 do
        consumer.put('wide', 'd' .. i, {})
    end
    local seen, after, most = 0, '', 0
    repeat
        local page = consumer.list('wide', after, 1000)
        seen, most = seen + #page.consumers, math.max(most, #page.consumers)
        after = page.more and page.consumers[#page.consumers].durable
    until not after
    t:is(seen, 9, 'all of them')
    t:ok(most <= 4, 'so that one call never takes long')
end)

test:test('a deleted durable leaves nothing, whatever it had', function(t)
    t:plan(5)
    harness.publish('gone', 1)
    consumer.put('gone', 'd', {mode = 'shared'})
    box.begin()
    for i = 1, 1200 do
        box.space.delivery:insert{'d', 'gone', i * 2, i * 2, 1, 1, box.NULL, 0, 0, box.NULL}
    end
    box.commit()
    t:is(consumer.delete('gone', 'd'), true)
    t:is(box.space.delivery:count{'d', 'gone'}, 0, 'no delivery')
    t:is(refusal(consumer.get, 'gone', 'd'), 'unknown_durable', 'no durable')
    consumer.put('gone', 'd', {})
    consumer.put('gone', 'half', {mode = 'shared'})
    box.space.consumers:update({'half', 'gone'}, {{'=', schema.consumers.mode, 'deleted'}})
    t:is(refusal(consumer.get, 'gone', 'half'), 'unknown_durable', 'one whose deletion was cut short is gone too')
    t:is(consumer.put('gone', 'half', {}).created, true, 'and can be made again')
end)

test:test('what a deletion that was cut short left is cleared away by the tick, some rows at a time', function(t)
    t:plan(6)
    harness.publish('cut', 1)
    local function fill()
        consumer.put('cut', 'half', {mode = 'shared'})
        box.begin()
        for i = 1, 1200 do
            box.space.delivery:insert{'half', 'cut', i * 2, i * 2, 1, 1, box.NULL, 0, 0, box.NULL}
        end
        box.space.consumers:update({'half', 'cut'}, {{'=', schema.consumers.mode, 'deleted'}})
        box.commit()
    end
    local function cleared()
        local all, most = 0, 0
        repeat
            local some = consumer_tick.tick(500).cleared
            all, most = all + some, math.max(most, some)
        until some == 0
        return all, most
    end
    consumer.put('cut', 'whole', {mode = 'shared'})
    consumer.put('cut', 'other', {mode = 'shared'})
    fill()
    local all, most = cleared()
    t:is(all, 1201, 'all of it')
    t:is(most, 500, 'at most so many a transaction')
    t:is(box.space.delivery:count{'half', 'cut'}, 0, 'nothing is left')
    t:ok(consumer.get('cut', 'whole'), 'the others stay')
    fill()
    t:is(cleared(), 0, 'when all were looked at, it costs nothing')
    consumer.delete('cut', 'other')
    t:is(cleared(), 1201, 'until another is deleted')
end)

test:test('a durable that is deleted while it is put is made again', function(t)
    t:plan(2)
    local txn = require('mts.txn')
    consumer.put('race', 'd', {mode = 'shared'})
    consumer.put('race', 'e', {mode = 'shared'})
    local run, calls = txn.run, 0
    txn.run = function(...)
        calls = calls + 1
        if calls == 2 then -- what the first found was marked meanwhile, as by a delete
            for _, name in ipairs{'d', 'e'} do
                box.space.consumers:update({name, 'race'}, {{'=', schema.consumers.mode, 'deleted'}})
            end
        end
        return run(...)
    end
    local made = refusal(consumer.put, 'race', 'd', {})
    txn.run = run
    t:is_deeply({made.created, made.consumer and made.consumer.mode}, {true, 'ordered'}, 'by a put')
    t:is(spec_api.update_consumer_position('e', 'race', 0), true, 'and by the specification\'s update')
end)

test:test('a durable of a deleted subject does not meet the new one', function(t)
    t:plan(5)
    local old = harness.publish('again', 3)
    consumer.put('again', 'd', {mode = 'shared'})
    box.space.subject:delete('again')
    t:is(refusal(consumer.get, 'again', 'd'), 'unknown_durable', 'it is gone with the subject')
    t:is(#message.page('again', 0, 10).rows, 0, 'and so are the messages')
    local first = message.sequence_at('known', 2 ^ 40)
    box.space.subject:insert{'again', box.sequence.incarnation:next(), 1, 0,
        setmetatable({}, {__serialize = 'map'}), first}
    local described = consumer.put('again', 'd', {}).consumer
    t:is_deeply({described.mode, described.lag}, {'ordered', 0}, 'a new one begins with the new subject')
    t:ok(consumer.seek('again', 'd', 0).last_sequence == first - 1, 'and cannot go back behind it')
    t:is(message.get(old), nil, 'what was before it cannot be read')
end)

test:test('retention is held by the slowest important durable', function(t)
    t:plan(3)
    local first = harness.publish('held', 5)
    consumer.put('held', 'slow', {})
    t:is(consumer.held_sequence('held'), nil, 'nobody is important')
    consumer.put('held', 'one', {important = true, start = first + 3})
    consumer.put('held', 'two', {important = true, start = first + 2})
    t:ok(consumer.held_sequence('held') == first + 1, 'the slower of two')
    t:is(consumer.held_sequence('none'), nil, 'none there')
end)

test:test('a time is found as a sequence', function(t)
    t:plan(6)
    local clock = require('mts.clock')
    local real, now = clock.seconds, clock.seconds()
    clock.seconds = function() return now end
    local early = harness.publish('time', 3)
    harness.publish('time-other', 3)
    now = now + 100
    local late = harness.publish('time', 3)
    clock.seconds = real
    t:ok(message.sequence_at('time', 0) == early, 'everything')
    t:ok(message.sequence_at('time', now - 100) == early, 'at the time of the first')
    t:ok(message.sequence_at('time', now - 99) == late, 'right behind it')
    t:ok(message.sequence_at('time', now) == late, 'at the time of the second')
    t:ok(message.sequence_at('time', now + 1) == late + 3, 'later than all: behind the end')
    t:ok(message.sequence_at('no-such', 0) == late + 3, 'a subject that is not there')
end)

for _, start in ipairs(harness.HIGH) do
    test:test('positions hold at ' .. tostring(start), function(t)
        harness.go_on_after(start)
        positions(t, 'high' .. tostring(start):match('%d+'))
    end)
end

harness.finish(test)
