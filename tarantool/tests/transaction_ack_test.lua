package.path = require('fio').dirname(require('fio').abspath(arg[0])) .. '/?.lua;' .. package.path
local harness = require('harness')
local acks = require('mts.transaction_ack')
local consumer = require('mts.consumer')
local delivery = require('mts.delivery')
local durables = require('mts.durable')
local message = require('mts.message')
local pack = require('mts.pack')
local session = require('mts.session')
local subject_admin = require('mts.subject_admin')
local tap = require('tap')
local transaction_end = require('mts.transaction_end')
local transactions = require('mts.transaction')
local txn = require('mts.txn')

local GRACE = harness.TIMES.put_grace
local later = harness.hold_clock()
local test = tap.test('acks in transactions')
test:plan(16)

local function begin()
    return transactions.begin(600).transaction_id
end

local function commit(id)
    return transaction_end.commit(id, GRACE)
end

local function stage(id, subject)
    return pack.commit(harness.pack{{subject = subject, sizes = {1}, transaction_id = id}}, 3600)[1]
end

local function position(subject, durable)
    return consumer.get(subject, durable).last_sequence
end

local function count(subject)
    return #message.page(subject, 0, 1000).rows
end

test:test('positions move with the messages, or not at all', function(t)
    t:plan(6)
    local first = harness.publish('in', 5)
    consumer.put('in', 'd', {})
    consumer.put('in', 'other', {})
    local id = begin()
    acks.add(id, 'in', 'd', {sequence = first + 1, from = 0})
    acks.add(id, 'in', 'other', {sequence = first + 4, from = 0})
    stage(id, 'out')
    t:is(position('in', 'd'), 0, 'nothing moves before the commit')
    acks.add(id, 'in', 'd', {sequence = first + 2, from = 0})
    acks.add(id, 'in', 'd', {sequence = first + 3, from = first + 2})
    t:is(transactions.get(id).rows, 3, 'a durable is one row, however often it is acked')
    commit(id)
    t:is(position('in', 'd'), first + 3, 'then it stands behind the last')
    t:is(position('in', 'other'), first + 4, 'so does the other')
    t:is(count('out'), 1, 'and the message is there')
    local undone = begin()
    acks.add(undone, 'in', 'd', {sequence = first + 4, from = first + 3})
    transaction_end.abort(undone, GRACE)
    t:is(position('in', 'd'), first + 3, 'an abort moves nothing')
end)

test:test('a durable that was moved and moved back, or made again, is not acked for what was read before', function(t)
    t:plan(6)
    local first = harness.publish('again', 3)
    local function conflicts(change, ack)
        consumer.put('again', 'd', {})
        local fence = durables.fence(durables.find('again', 'd'))
        local id = begin()
        if ack == 'late' then
            change()
            t:is(harness.refusal(acks.add, id, 'again', 'd', {sequence = first + 2, from = first - 1, fence = fence}),
                'transaction_conflict', 'an ack that shows what it read is refused at once')
            return
        end
        acks.add(id, 'again', 'd', {sequence = first + 2, from = first - 1})
        change()
        t:is(harness.refusal(commit, id), 'transaction_conflict', 'the commit is refused')
        t:is(position('again', 'd'), first - 1, 'and the messages are there to be read')
    end
    local function move()
        consumer.seek('again', 'd', first + 3)
        consumer.seek('again', 'd', first)
    end
    local function make_again()
        consumer.delete('again', 'd')
        consumer.put('again', 'd', {start = first})
    end
    consumer.put('again', 'd', {start = first})
    for _, change in ipairs{move, make_again} do
        conflicts(change)
        conflicts(change, 'late')
    end
end)

test:test('what lies before the position is not acked once more', function(t)
    t:plan(4)
    local first = harness.publish('behind', 3)
    consumer.put('behind', 'd', {start = first})
    consumer.ack('behind', 'd', first + 1)
    local id = begin()
    for _, sequence in ipairs{first, first + 1} do
        t:is(harness.refusal(acks.add, id, 'behind', 'd', {sequence = sequence, from = first + 1}), 'bad_request',
            'its output was published when it was acked')
    end
    local reader = session.join('behind', 'd', 'a', 60)
    local share = {partition = 0, fence = reader.partitions[1].fence, sequence = first + 1, from = first + 1}
    local ack = {session_id = 'a', epoch = reader.epoch, partitions = {share}}
    t:is(harness.refusal(acks.add, id, 'behind', 'd', ack), 'bad_request', 'nor by a session')
    share.sequence = first + 2
    acks.add(id, 'behind', 'd', ack)
    t:is(commit(id).state, 'committed', 'what lies behind it is')
end)

test:test('what a filter leaves out is no conflict for who acks on from the last it was given', function(t)
    t:plan(6)
    local given = {}
    for at, kind in ipairs{'a', 'b', 'b', 'a', 'b', 'a'} do
        given[at] = harness.publish('filtered', 1, {headers = {kind = kind}})
    end
    consumer.put('filtered', 'd', {start = given[1], filter = {{header = 'kind', op = 'equals', value = 'a'}}})
    local function ack(sequence, from)
        local id = begin()
        local refused = harness.refusal(acks.add, id, 'filtered', 'd', {sequence = sequence, from = from})
        commit(id)
        return refused
    end
    t:is(ack(given[1], given[1] - 1), true, 'the first')
    t:is(position('filtered', 'd'), given[3], 'moves on over what is left out')
    t:is(ack(given[4], given[1]), true, 'behind it, the second')
    t:is(ack(given[6], given[1]), 'transaction_conflict', 'not over one that fits')
    t:is(ack(given[6], given[5] + 1), 'transaction_conflict', 'nor from ahead')
    t:is(ack(given[6], given[5]), true, 'from where it stands, as ever')
end)

test:test('of two who read from the same position one is counted', function(t)
    t:plan(7)
    local first = harness.publish('race', 3)
    consumer.put('race', 'd', {})
    local one, two = begin(), begin()
    for _, id in ipairs{one, two} do
        acks.add(id, 'race', 'd', {sequence = first + 2, from = first - 1})
        stage(id, 'counted')
    end
    commit(one)
    local ok, refusal = pcall(commit, two)
    t:is(not ok and refusal.code, 'transaction_conflict', 'the second is refused')
    t:is(refusal.details.state, 'aborted', 'and aborted')
    t:is(refusal.details.position, first + 2, 'saying where the durable stands')
    t:is(count('counted'), 1, 'its message is not there')
    t:is(transactions.get(two).state, 'aborted', 'for good')
    t:is(harness.refusal(acks.add, begin(), 'race', 'd', {sequence = first + 2, from = first}), 'transaction_conflict',
        'who comes later learns it at once')
    local third = begin()
    harness.publish('race', 1)
    acks.add(third, 'race', 'd', {sequence = first + 3, from = first + 2})
    t:is(harness.refusal(acks.add, third, 'race', 'd', {sequence = first + 3, from = first}), 'transaction_conflict',
        'acks of one transaction fit together')
end)

test:test('when one of several acks is refused none of them counts', function(t)
    t:plan(3)
    local first = harness.publish('several', 2)
    local id = begin()
    for _, durable in ipairs{'one', 'two', 'three'} do
        consumer.put('several', durable, {})
        acks.add(id, 'several', durable, {sequence = first + 1, from = first - 1})
    end
    consumer.ack('several', 'two', first)
    t:is(harness.refusal(commit, id), 'transaction_conflict', 'refused')
    t:is(position('several', 'one'), first - 1, 'what came before it did not move')
    t:is(position('several', 'three'), first - 1, 'nor what came behind')
end)

test:test('a refused ack changes nothing, and the transaction goes on', function(t)
    t:plan(6)
    local first = harness.publish('bad', 1)
    consumer.put('bad', 'd', {})
    consumer.put('bad', 'queue', {mode = 'shared'})
    local id = begin()
    t:is(harness.refusal(acks.add, id, 'bad', 'nobody', {sequence = first, from = 0}), 'unknown_durable', 'unknown')
    t:is(harness.refusal(acks.add, id, 'bad', 'queue', {sequence = first, from = 0}), 'mode_mismatch', 'shared')
    t:is(harness.refusal(acks.add, id, 'bad', 'd', {sequence = first + 1000, from = first - 1}), 'beyond_end', 'none')
    t:is(harness.refusal(acks.add, id, 'bad', 'd', {lease_id = 'x', sequences = {first}}), 'mode_mismatch', 'no lease')
    t:is(transactions.get(id).rows, 0, 'none of them counts')
    t:is(commit(id).state, 'committed', 'an empty one commits')
end)

test:test('leased messages are done with the commit', function(t)
    t:plan(5)
    harness.publish('work', 10)
    consumer.put('work', 'q', {mode = 'shared'})
    local lease = delivery.lease('work', 'q', 4, 30)
    local first = lease.tries[1][1]
    local id = begin()
    acks.add(id, 'work', 'q', {lease_id = lease.lease_id, sequences = {first + 1, first}})
    acks.add(id, 'work', 'q', {lease_id = lease.lease_id, sequences = {first + 1, first + 2}})
    t:is(transactions.get(id).rows, 3, 'each counts once')
    t:is(consumer.get('work', 'q').outstanding, 4, 'nothing is acked before the commit')
    t:is(harness.refusal(acks.add, id, 'work', 'q', {lease_id = lease.lease_id, sequences = {first + 5}}), 'lease_lost',
        'what is not leased is refused')
    commit(id)
    t:is(consumer.get('work', 'q').outstanding, 1, 'three are done')
    t:is(consumer.get('work', 'q').last_sequence, first + 2, 'for good')
end)

test:test('a lease that was handed to another aborts it', function(t)
    t:plan(4)
    harness.publish('lost', 2)
    consumer.put('lost', 'q', {mode = 'shared', max_deliver = 0})
    local lease = delivery.lease('lost', 'q', 2, 1)
    local id = begin()
    acks.add(id, 'lost', 'q', {lease_id = lease.lease_id, sequences = {lease.tries[1][1]}})
    stage(id, 'lost-out')
    later(1000)
    local again = delivery.lease('lost', 'q', 2, 30)
    t:is(again.tries[1][3], 2, 'another has it')
    t:is(harness.refusal(commit, id), 'transaction_conflict', 'refused')
    t:is(transactions.get(id).reason, 'lease_lost', 'with the reason')
    t:is(consumer.get('lost', 'q').outstanding + count('lost-out'), 2, 'nothing changed')
end)

test:test('a session acks partitions while it holds them', function(t)
    t:plan(5)
    subject_admin.put('parts', {partitions = 2})
    local zero, one = harness.append('parts', 0), harness.append('parts', 1)
    consumer.put('parts', 'd', {})
    local joined = session.join('parts', 'd', 'reader', 300)
    local id = begin()
    local function ack(partition, sequence)
        return {session_id = 'reader', epoch = joined.epoch, partitions = {{partition = partition,
            fence = joined.partitions[partition + 1].fence, sequence = sequence, from = zero - 1}}}
    end
    t:is(harness.refusal(acks.add, id, 'parts', 'd', {sequence = one, from = zero - 1}), 'sessions_active',
        'past a session nothing is acked')
    acks.add(id, 'parts', 'd', ack(0, zero))
    acks.add(id, 'parts', 'd', ack(1, one))
    t:is(transactions.get(id).rows, 2, 'a row a partition')
    commit(id)
    t:is(position('parts', 'd'), one, 'both are acked')
    local more, lost = harness.append('parts', 1), begin()
    local late = ack(1, more)
    late.partitions[1].from = one
    acks.add(lost, 'parts', 'd', late)
    session.join('parts', 'd', 'second', 300)
    session.leave('parts', 'd', 'reader', joined.epoch)
    t:is(harness.refusal(commit, lost), 'transaction_conflict', 'a partition that was lost is refused')
    t:is(position('parts', 'd'), one, 'and does not move')
end)

local function session_ack(joined, partition, sequence, from)
    return {session_id = joined.session_id, epoch = joined.epoch, partitions = {{partition = partition,
        fence = joined.partitions[partition + 1].fence, sequence = sequence, from = from}}}
end

test:test('what a session was given twice is counted once', function(t)
    t:plan(9)
    local first = harness.publish('twice', 4)
    consumer.put('twice', 'd', {start = first})
    local joined = session.join('twice', 'd', 'reader', 300)
    local function conflicts(id, last, from)
        return harness.refusal(acks.add, id, 'twice', 'd', session_ack(joined, 0, last, from))
    end
    t:is(conflicts(begin(), first + 1), 'transaction_conflict', 'who does not say what was read is refused')
    t:is(conflicts(begin(), first + 1, first), 'transaction_conflict', 'as is who reads from ahead')
    local one, two = begin(), begin()
    for _, id in ipairs{one, two} do
        t:is(conflicts(id, first + 1, first - 1), true, 'read, and read again')
        stage(id, 'twice-out')
    end
    commit(one)
    t:is(harness.refusal(commit, two), 'transaction_conflict', 'one of the two is refused')
    t:is(count('twice-out'), 1, 'and its message is not there')
    t:is(conflicts(begin(), first + 2, first - 1), 'transaction_conflict', 'who comes later learns it at once')
    local third = begin()
    conflicts(third, first + 2, first + 1)
    t:is(conflicts(third, first + 3, first), 'transaction_conflict', 'acks of one transaction fit together')
    t:is(conflicts(third, first + 3, first + 2), true, 'when each goes on behind the other')
end)

test:test('a partition that went along with the others is no conflict', function(t)
    t:plan(5)
    subject_admin.put('along', {partitions = 2})
    local zero, one = harness.append('along', 0), harness.append('along', 1)
    consumer.put('along', 'd', {start = zero})
    local joined = session.join('along', 'd', 'reader', 300)
    local function ack(partition, sequence, from)
        local id = begin()
        local refused = harness.refusal(acks.add, id, 'along', 'd', session_ack(joined, partition, sequence, from))
        commit(id)
        return refused
    end
    t:is(ack(0, zero, zero - 1), true, 'one')
    t:is(ack(1, one, zero - 1), true, 'and the other, to its end')
    t:is(position('along', 'd'), one, 'the durable stands behind both')
    local more = harness.append('along', 0)
    t:is(ack(0, more, zero), true, 'the first goes on from its own last')
    t:is(ack(0, more, zero), 'transaction_conflict', 'once')
end)

test:test('what expired after it was acked is not counted again', function(t)
    t:plan(4)
    local first = harness.publish('gone', 2, {headers = {kind = 'a'}})
    local filter = {{header = 'kind', op = 'equals', value = 'a'}}
    consumer.put('gone', 'd', {start = first, filter = filter})
    consumer.put('gone', 's', {start = first, filter = filter})
    local joined = session.join('gone', 's', 'reader', 300)
    local late = {}
    for _, durable in ipairs{'d', 's'} do
        local one, two = begin(), begin()
        for _, id in ipairs{one, two} do
            acks.add(id, 'gone', durable, durable == 's' and session_ack(joined, 0, first + 1, first - 1)
                or {sequence = first + 1, from = first - 1})
        end
        t:is(commit(one).state, 'committed', 'acked')
        table.insert(late, two)
    end
    txn.run(function() message.remove(message.locate(first), 'test') end)
    for _, id in ipairs(late) do
        t:is(harness.refusal(commit, id), 'transaction_conflict', 'not again')
    end
end)

test:test('a seek between the ack and the commit aborts it', function(t)
    t:plan(2)
    local first = harness.publish('seek', 3)
    consumer.put('seek', 'd', {})
    consumer.ack('seek', 'd', first)
    local id = begin()
    acks.add(id, 'seek', 'd', {sequence = first + 1, from = first})
    consumer.seek('seek', 'd', first)
    t:is(harness.refusal(commit, id), 'transaction_conflict', 'refused')
    t:is(position('seek', 'd'), first - 1, 'the seek stands')
end)

test:test('leased messages count as rows', function(t)
    t:plan(2)
    harness.publish('many', 1500)
    consumer.put('many', 'q', {mode = 'shared'})
    local id, added = begin(), 0
    local code
    for _ = 1, 3 do
        local lease, sequences = delivery.lease('many', 'q', 500, 30), {}
        for i = 0, 499 do
            sequences[i + 1] = lease.tries[1][1] + i
        end
        code = harness.refusal(acks.add, id, 'many', 'q', {lease_id = lease.lease_id, sequences = sequences})
        added = added + (code == true and 500 or 0)
    end
    t:is(code, 'transaction_too_large', 'the third is too much')
    commit(id)
    t:is(consumer.get('many', 'q').outstanding, 1500 - added, 'two were taken')
end)

test:test('sequences may be large', function(t)
    t:plan(3 * #harness.HIGH)
    for i, last in ipairs(harness.HIGH) do
        harness.go_on_after(last)
        local subject = 'high-' .. i
        local first = harness.publish(subject, 3)
        consumer.put(subject, 'd', {start = first})
        consumer.put(subject, 'q', {mode = 'shared', start = first})
        local lease, id = delivery.lease(subject, 'q', 3, 30), begin()
        acks.add(id, subject, 'd', {sequence = first + 1, from = first - 1})
        acks.add(id, subject, 'd', {sequence = first + 2, from = first + 1})
        acks.add(id, subject, 'q', {lease_id = lease.lease_id, sequences = {first + 2, first}})
        acks.add(id, subject, 'q', {lease_id = lease.lease_id, sequences = {first, first + 1}})
        stage(id, subject)
        t:is(commit(id).receipts[1][2], first + 3, 'the next sequence')
        t:is(position(subject, 'd'), first + 2, 'the position')
        t:is(consumer.get(subject, 'q').outstanding, 0, 'the lease')
    end
end)

harness.finish(test)
