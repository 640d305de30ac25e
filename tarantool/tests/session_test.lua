-- Readers that share the partitions of an ordered durable: who reads what, and whose acks count (rule 17).
package.path = require('fio').dirname(require('fio').abspath(arg[0])) .. '/?.lua;' .. package.path
local harness = require('harness')
local consumer = require('mts.consumer')
local consumer_read = require('mts.consumer_read')
local consumer_tick = require('mts.consumer_tick')
local scan = require('mts.scan')
local schema = require('mts.schema')
local session = require('mts.session')
local spec_api = require('mts.spec_api')
local tap = require('tap')

local F, P = schema.message, schema.partition
local refusal = harness.refusal
local advance = harness.hold_clock()
local test = tap.test('sessions')
test:plan(20)

-- Messages round robin over the partitions; the sequence of the last one.
local function fill(subject, partitions, count)
    local last
    for i = 0, count - 1 do
        last = harness.append(subject, i % partitions)
    end
    return last
end

local function numbers(joined)
    local found = {}
    for _, lane in ipairs(joined.partitions) do
        table.insert(found, lane.partition)
    end
    return found
end

local function held(joined, partition)
    for _, lane in ipairs(joined.partitions) do
        if lane.partition == partition then
            return lane
        end
    end
end

local function ack(subject, joined, partition, sequence)
    return session.ack(subject, 'd', joined.session_id, joined.epoch,
        {{partition, held(joined, partition).fence, sequence}})
end

local function beat(subject, joined)
    return session.heartbeat(subject, 'd', joined.session_id, joined.epoch)
end

test:test('partitions are spread evenly, and those who have them keep them', function(t)
    t:plan(6)
    fill('spread', 5, 5)
    consumer.put('spread', 'd', {})
    local a = session.join('spread', 'd', 'a', 30)
    t:is_deeply(numbers(a), {0, 1, 2, 3, 4}, 'one reader has all')
    local b = session.join('spread', 'd', 'b', 30)
    t:is_deeply({numbers(beat('spread', a)), numbers(b)}, {{0, 1, 2}, {3, 4}}, 'two share them')
    t:is(held(beat('spread', a), 0).fence, held(a, 0).fence, 'what stays keeps its fence')
    local c = session.join('spread', 'd', 'c', 30)
    t:is_deeply({numbers(beat('spread', a)), numbers(beat('spread', b)), numbers(c)}, {{0, 1}, {3, 4}, {2}},
        'three too')
    t:ok(held(c, 2).fence > held(a, 2).fence, 'what moved has a higher fence')
    session.leave('spread', 'd', 'a', a.epoch)
    t:is_deeply({numbers(beat('spread', b)), numbers(beat('spread', c))}, {{0, 3, 4}, {1, 2}}, 'one leaves')
end)

test:test('a heartbeat writes nothing', function(t)
    t:plan(2)
    fill('quiet', 2, 2)
    consumer.put('quiet', 'd', {})
    local a = session.join('quiet', 'd', 'a', 30)
    local before = box.info.lsn
    advance(20000)
    beat('quiet', a)
    advance(20000)
    t:is(#beat('quiet', a).partitions, 2, 'it keeps the session alive')
    t:is(box.info.lsn, before, 'and the log as it is')
end)

test:test('a reader reads its partitions, each from its own position', function(t)
    t:plan(7)
    local last = fill('read', 2, 6)
    consumer.put('read', 'd', {})
    local a, b = session.join('read', 'd', 'a', 30), session.join('read', 'd', 'b', 30)
    local function read(joined, more)
        local options = {limit = 10, session_id = joined.session_id, epoch = joined.epoch}
        for name, value in pairs(more or {}) do
            options[name] = value
        end
        return consumer_read.read('read', 'd', options)
    end
    local page = read(a)
    t:is_deeply({#page.rows, tonumber(page.rows[1][F.partition]), #page.partitions}, {3, 0, 1}, 'only its own')
    t:ok(page.rows[1][F.sequence] < page.rows[2][F.sequence], 'in order')
    ack('read', a, 0, page.rows[2][F.sequence])
    t:is(#read(a).rows, 1, 'behind what it acked')
    t:is(#read(b).rows, 3, 'the other has its own position')
    local fence = page.partitions[1].fence
    t:is(#read(a, {after_by_partition = {{0, last, fence}}}).rows, 0, 'it reads on before it acks')
    t:is(#read(a, {after_by_partition = {{0, last, fence - 1}}}).rows, 1, 'unless it lost the partition meanwhile')
    t:is(#consumer_read.read('read', 'd', {limit = 10}).rows, 4, 'a look without a session sees what is not acked')
end)

test:test('a look at a partition that stays behind ends after so many rows of those that are ahead', function(t)
    t:plan(1)
    local real = scan.MOST_ROWS
    scan.MOST_ROWS = 3
    fill('behind', 2, 2)
    fill('behind', 1, 6)
    local last = fill('behind', 2, 2)
    consumer.put('behind', 'd', {})
    local joined = session.join('behind', 'd', 'a', 30)
    ack('behind', joined, 0, last - 1)
    local found, pages, next_sequence = 0, 0, 1
    repeat
        local page = consumer_read.read('behind', 'd', {limit = 10, after = next_sequence - 1})
        found, pages, next_sequence = found + #page.rows, pages + 1, page.next_sequence
    until next_sequence > last
    t:is_deeply({found, pages}, {2, 3}, 'what is left is found by going on')
    scan.MOST_ROWS = real
end)

test:test('the position of a durable is the least of its partitions with something left', function(t)
    t:plan(6)
    local last = fill('floor', 2, 6)
    consumer.put('floor', 'd', {})
    local a, b = session.join('floor', 'd', 'a', 30), session.join('floor', 'd', 'b', 30)
    a = beat('floor', a)
    t:ok(ack('floor', a, 0, last - 1).last_sequence < last - 5, 'the other partition holds it back')
    local described = consumer.get('floor', 'd')
    t:is_deeply({described.lag, described.partitions[1].lag, described.partitions[2].lag}, {3, 0, 3}, 'the lag of each')
    t:is_deeply({described.partitions[1].session_id, described.sessions}, {'a', 2}, 'and who reads it')
    t:ok(ack('floor', b, 1, last - 2).last_sequence == last - 2, 'it follows')
    t:ok(ack('floor', b, 1, last - 4).last_sequence == last - 2, 'and never goes back')
    t:ok(ack('floor', b, 1, last).last_sequence == last, 'to the end of all')
end)

test:test('a reader that dies loses its partitions, and its late ack changes nothing', function(t)
    t:plan(8)
    local last = fill('dies', 2, 4)
    consumer.put('dies', 'd', {})
    local a, b = session.join('dies', 'd', 'a', 10), session.join('dies', 'd', 'b', 10)
    a = beat('dies', a)
    ack('dies', b, 1, last - 2)
    advance(6000)
    a = beat('dies', a)
    advance(6000)
    a = beat('dies', a)
    t:is_deeply(numbers(a), {0, 1}, 'the other takes over')
    t:ok(held(a, 1).position == last - 2, 'where the dead one stopped')
    t:is(refusal(ack, 'dies', b, 1, last), 'unknown_session', 'the late ack is refused')
    t:is(consumer.get('dies', 'd').partitions[2].lag, 1, 'and changes nothing')
    t:is(refusal(beat, 'dies', b), 'unknown_session', 'so is its heartbeat')
    local again = session.join('dies', 'd', 'b', 10)
    t:is(refusal(session.ack, 'dies', 'd', 'b', again.epoch, {{1, held(b, 1).fence, last}}), 'position_moved',
        'also when it came back: its old fence is void')
    t:is(refusal(session.ack, 'dies', 'd', 'b', again.epoch, {{1, held(again, 1).fence, last}, {0, 1, last}}),
        'partition_lost', 'one bad ack of several')
    t:is(consumer.get('dies', 'd').partitions[2].lag, 1, 'voids all of them')
end)

test:test('a late reader is dead also when nobody noticed', function(t)
    t:plan(2)
    local last = fill('unnoticed', 1, 1)
    consumer.put('unnoticed', 'd', {})
    local a = session.join('unnoticed', 'd', 'a', 10)
    advance(10000)
    t:is(refusal(ack, 'unnoticed', a, 0, last), 'unknown_session')
    t:is_deeply({consumer.get('unnoticed', 'd').sessions, box.space.session:count{'d', 'unnoticed'}}, {0, 0})
end)

test:test('of two readers with one session the older is fenced', function(t)
    t:plan(5)
    local last = fill('same', 1, 1)
    consumer.put('same', 'd', {})
    local old = session.join('same', 'd', 'x', 30)
    local new = session.join('same', 'd', 'x', 30)
    t:is(refusal(beat, 'same', old), 'session_fenced', 'heartbeat')
    t:is(refusal(ack, 'same', old, 0, last), 'session_fenced', 'ack')
    t:is(refusal(consumer_read.read, 'same', 'd', {limit = 1, session_id = 'x', epoch = old.epoch}),
        'session_fenced', 'read')
    t:is(refusal(session.leave, 'same', 'd', 'x', old.epoch), 'session_fenced', 'leave')
    t:ok(ack('same', new, 0, last).last_sequence == last, 'the newer goes on')
end)

test:test('without a session nothing is acked while sessions live', function(t)
    t:plan(5)
    local last = fill('alive', 1, 1)
    consumer.put('alive', 'd', {})
    local a = session.join('alive', 'd', 'a', 10)
    t:is(refusal(consumer.ack, 'alive', 'd', last), 'sessions_active', 'ack')
    t:is(refusal(spec_api.update_consumer_position, 'd', 'alive', last), 'sessions_active', 'the old call')
    t:is(refusal(ack, 'alive', a, 0, last + 1), 'beyond_end', 'nor beyond the end with one')
    advance(10000)
    t:ok(consumer.ack('alive', 'd', last).last_sequence == last, 'but when they are dead')
    t:is(consumer.get('alive', 'd').lag, 0)
end)

test:test('seek fences all readers', function(t)
    t:plan(4)
    local last = fill('seek', 2, 4)
    consumer.put('seek', 'd', {})
    local a = session.join('seek', 'd', 'a', 30)
    ack('seek', a, 0, last)
    consumer.seek('seek', 'd', 0)
    t:is(consumer.get('seek', 'd').lag, 4, 'all is to be read again')
    t:is(refusal(ack, 'seek', a, 0, last), 'position_moved', 'what was read before does not count')
    a = beat('seek', a)
    t:is(#a.partitions, 2, 'the reader keeps its partitions')
    ack('seek', a, 0, last)
    t:is(consumer.get('seek', 'd').lag, 2, 'and goes on with their new fences')
end)

test:test('a split partition is read to its end before its children', function(t)
    t:plan(7)
    local parent_last = fill('split', 1, 3)
    box.space.partition:update({'split', 0}, {{'=', P.inactive, true}, {'=', P.parent, box.NULL},
        {'=', P.hash_from, 0}, {'=', P.hash_to, 2 ^ 32}, {'=', P.split_at, parent_last}})
    for child = 1, 2 do
        box.space.partition:insert{'split', child, 0, 0, 0, 0, false, 0, 0, 0, box.NULL}
        harness.append('split', child)
    end
    consumer.put('split', 'd', {})
    local a, b = session.join('split', 'd', 'a', 30), session.join('split', 'd', 'b', 30)
    t:is_deeply({numbers(a), numbers(b)}, {{0}, {}}, 'the children wait')
    ack('split', a, 0, parent_last - 1)
    t:is_deeply(numbers(beat('split', b)), {}, 'until the end')
    ack('split', a, 0, parent_last)
    t:is_deeply({numbers(beat('split', a)), numbers(beat('split', b))}, {{1}, {2}}, 'then they are read')
    t:is(refusal(ack, 'split', a, 0, parent_last), 'partition_lost', 'and the parent is nobody\'s')
    consumer.seek('split', 'd', 0)
    t:is_deeply({numbers(beat('split', a)), numbers(beat('split', b))}, {{0}, {}}, 'after a seek they wait again')
    box.space.partition:delete{'split', 0}
    t:is_deeply({numbers(beat('split', a)), numbers(beat('split', b))}, {{1}, {2}}, 'a vanished parent is read')
    t:is(#box.space.consumer_partition:select{'d', 'split'} <= 3, true, 'no rows pile up')
end)

test:test('a session begins where the durable is and reads its partitions in sequence order', function(t)
    t:plan(3)
    local last = fill('order', 3, 9)
    consumer.put('order', 'd', {start = last - 3})
    local a = session.join('order', 'd', 'a', 30)
    t:ok(held(a, 2).position == last - 4, 'where the durable is')
    local rows = consumer_read.read('order', 'd', {limit = 9, session_id = 'a', epoch = a.epoch}).rows
    local found = {}
    for _, row in ipairs(rows) do
        table.insert(found, tonumber(last - row[F.sequence]))
    end
    t:is_deeply(found, {3, 2, 1, 0}, 'in order')
    local page = consumer_read.read('order', 'd', {limit = 2, session_id = 'a', epoch = a.epoch})
    t:ok(page.next_sequence == last - 1, 'and everything below `next_sequence` was read')
end)

test:test('a reader that came before the first message gets its partition', function(t)
    t:plan(2)
    consumer.put('empty', 'd', {})
    local a = session.join('empty', 'd', 'a', 30)
    t:is(#a.partitions, 0, 'there is none')
    harness.append('empty', 0)
    local page = consumer_read.read('empty', 'd', {limit = 1, session_id = 'a', epoch = a.epoch})
    t:is_deeply({#page.partitions, #page.rows}, {1, 1}, 'now there is')
end)

test:test('who reads what is asked again only when something has changed', function(t)
    t:plan(7)
    local position, subject_admin = require('mts.position'), require('mts.subject_admin')
    subject_admin.put('steady', {partitions = 4})
    local last = fill('steady', 4, 8)
    consumer.put('steady', 'd', {})
    local a, b = session.join('steady', 'd', 'a', 30), session.join('steady', 'd', 'b', 30)
    a = beat('steady', a)
    local readable, asked = position.readable, 0
    position.readable = function(row)
        asked = asked + 1
        return readable(row)
    end
    beat('steady', b)
    consumer_read.read('steady', 'd', {limit = 10, session_id = 'a', epoch = a.epoch})
    ack('steady', a, 0, last - 3)
    t:is(asked, 0, 'not by calls, and not by acks')
    t:is_deeply({numbers(beat('steady', a)), numbers(beat('steady', b))}, {{0, 1}, {2, 3}}, 'which answer as before')
    t:ok(held(beat('steady', a), 0).position == last - 3, 'with the positions of now')
    subject_admin.put('steady', {partitions = 5})
    t:is_deeply({numbers(beat('steady', a)), numbers(beat('steady', b))}, {{0, 1, 4}, {2, 3}}, 'a new partition')
    advance(20000)
    beat('steady', a)
    advance(15000)
    t:is_deeply(numbers(beat('steady', a)), {0, 1, 2, 3, 4}, 'a session that died')
    local c = session.join('steady', 'd', 'c', 30)
    t:is(#beat('steady', a).partitions + #c.partitions, 5, 'one that came')
    t:ok(asked <= 5, 'once for each')
    position.readable = readable
end)

test:test('an ack that a transaction only tries changes nobody\'s partitions', function(t)
    t:plan(3)
    local transactions, transaction_ack = require('mts.transaction'), require('mts.transaction_ack')
    local split, subjects, txn = require('mts.split'), require('mts.subject'), require('mts.txn')
    local parent_last = harness.publish('tried', 3) + 2
    txn.run(function() split.split(subjects.find('tried'), 0, 8) end)
    consumer.put('tried', 'd', {})
    local a, b = session.join('tried', 'd', 'a', 30), session.join('tried', 'd', 'b', 30)
    local id = transactions.begin(60).transaction_id
    transaction_ack.add(id, 'tried', 'd', {session_id = 'a', epoch = a.epoch,
        partitions = {{partition = 0, fence = held(a, 0).fence, sequence = parent_last, from = held(a, 0).position}}})
    t:is_deeply({numbers(beat('tried', a)), numbers(beat('tried', b))}, {{0}, {}}, 'the parent is not read yet')
    require('mts.transaction_end').commit(id, 900)
    t:is_deeply({numbers(beat('tried', a)), numbers(beat('tried', b))}, {{1}, {2}}, 'by the commit it is')
    consumer.seek('tried', 'd', 0)
    t:is_deeply({numbers(beat('tried', a)), numbers(beat('tried', b))}, {{0}, {}}, 'until a seek')
end)

test:test('the tick drops dead sessions of durables that nobody calls', function(t)
    t:plan(5)
    fill('tick', 1, 1)
    consumer.put('tick', 'd', {})
    session.join('tick', 'd', 'dead', 10)
    local alive = session.join('tick', 'd', 'alive', 10)
    advance(5000)
    beat('tick', alive)
    advance(6000)
    consumer_tick.tick(100)
    t:is(box.space.session:get{'d', 'tick', 'dead'}, nil, 'the dead one')
    t:isnt(box.space.session:get{'d', 'tick', 'alive'}, nil, 'not the other')
    t:is(consumer.get('tick', 'd').partitions[1].session_id, 'alive', 'which has the partition')
    advance(10000)
    consumer_tick.tick(100)
    t:is(box.space.session:count{'d', 'tick'}, 0, 'its time comes too')
    t:is(consumer.get('tick', 'd').partitions[1].session_id, nil, 'then nobody reads')
end)

test:test('after a restart every session has its whole time again', function(t)
    t:plan(2)
    consumer.put('tick', 'restart', {})
    box.space.session:insert{'restart', 'tick', 'a', 7, 10}
    advance(100000)
    t:is(#session.heartbeat('tick', 'restart', 'a', 7).partitions, 1, 'it goes on')
    advance(10000)
    t:is(refusal(session.heartbeat, 'tick', 'restart', 'a', 7), 'unknown_session', 'and ends as any other')
end)

test:test('a durable has no more readers than there can be partitions', function(t)
    t:plan(4)
    fill('crowd', 2, 2)
    consumer.put('crowd', 'd', {})
    session.join('crowd', 'd', 'r1', 30)
    for i = 2, 256 do
        session.join('crowd', 'd', 'r' .. i, 60)
    end
    t:is(refusal(session.join, 'crowd', 'd', 'another', 30), 'quota_exceeded', 'the next is refused')
    t:is(#session.join('crowd', 'd', 'r1', 30).partitions, 1, 'one of them may come again, and has what it had')
    advance(31000)
    t:is(session.join('crowd', 'd', 'another', 30).session_id, 'another', 'the dead do not count')
    t:is(refusal(session.join, 'crowd', 'd', 'one too many', 30), 'quota_exceeded', 'the new one does')
end)

for _, start in ipairs(harness.HIGH) do
    test:test('sessions ack at ' .. tostring(start), function(t)
        t:plan(4)
        harness.go_on_after(start)
        local subject = 'high' .. tostring(start):match('%d+')
        local last = fill(subject, 2, 4)
        consumer.put(subject, 'd', {})
        local a = session.join(subject, 'd', 'a', 30)
        t:ok(ack(subject, a, 0, last - 1).last_sequence < last - 3, 'one partition')
        t:is(consumer.get(subject, 'd').lag, 2, 'the lag of the other')
        t:is(#consumer_read.read(subject, 'd', {limit = 9, session_id = 'a', epoch = a.epoch}).rows, 2, 'to be read')
        t:ok(ack(subject, a, 1, last).last_sequence == last, 'both')
    end)
end

harness.finish(test)
