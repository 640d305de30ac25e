package.path = require('fio').dirname(require('fio').abspath(arg[0])) .. '/?.lua;' .. package.path
local harness = require('harness')
local message = require('mts.message')
local object = require('mts.object')
local outcome = require('mts.upload_outcome')
local pack = require('mts.pack')
local quota = require('mts.quota')
local schema = require('mts.schema')
local subject_admin = require('mts.subject_admin')
local subjects = require('mts.subject')
local tap = require('tap')
local transaction_end = require('mts.transaction_end')
local transactions = require('mts.transaction')
local txn = require('mts.txn')
local upload = require('mts.upload')

local F = schema.message
local GRACE = harness.TIMES.put_grace
local later = harness.hold_clock()
local test = tap.test('transactions')
test:plan(18)

local function begin(timeout)
    return transactions.begin(timeout).transaction_id
end

local function commit(id)
    return transaction_end.commit(id, GRACE)
end

local function abort(id)
    return transaction_end.abort(id, GRACE)
end

-- A batch of a subject in a transaction; the answer, and the name of the pack.
local function stage(id, subject, count, more)
    local group = {subject = subject, sizes = {}, transaction_id = id}
    for i = 1, count do
        group.sizes[i] = 10
    end
    for key, value in pairs(more or {}) do
        group[key] = value
    end
    local packed = harness.pack{group}
    packed.all_or_none = true
    return pack.commit(packed, 3600)[1], packed.object_name
end

local function by_producer(seqnos, producer_id)
    local marks = {}
    for i, seqno in ipairs(seqnos) do
        marks[i] = {index = i - 1, producer_id = producer_id or 'p', seqno = seqno}
    end
    return {marks = marks}
end

local function read(subject)
    return message.page(subject, 0, 10000).rows
end

test:test('what is published in it is seen by nobody before the commit, and then at once', function(t)
    t:plan(10)
    local id = begin()
    local staged = stage(id, 'a', 3).staged
    t:is_deeply({#staged, staged[1][1], staged[1][2]}, {1, 0, 3}, 'three frames are one upload')
    local ticket = harness.ticket('b', 5, {transaction_id = id}).upload
    local receipt = harness.commit(ticket.id, 5)
    t:is(receipt.state, 'stored', 'a payload that arrived waits')
    t:is(receipt.transaction_id, id, 'for its transaction')
    t:is(#read('a') + #read('b'), 0, 'nothing is seen')
    local done = commit(id)
    t:is(done.state, 'committed', 'committed')
    t:is(#done.receipts, 2, 'a receipt for each upload')
    t:is_deeply({done.receipts[1][1], done.receipts[1][5]}, {staged[1][3], 3}, 'which says what it stands for')
    t:is(done.receipts[2][2], done.receipts[1][2] + 1, 'in the order of publishing')
    t:is(upload.get(ticket.id).receipt.sequence, done.receipts[2][2], 'the upload knows its sequence')
    t:is_deeply(commit(id).receipts, done.receipts, 'a second commit gets the same answer')
end)

test:test('offsets are consecutive in each partition', function(t)
    t:plan(3)
    subject_admin.put('lanes', {partitions = 3})
    harness.publish('lanes', 1)
    local id = begin()
    for i = 1, 4 do
        stage(id, 'lanes', 2, {marks = {{index = 0, group = 'one', hash = 5},
            {index = 1, group = 'two', hash = 2 ^ 31}}})
        harness.publish('lanes', i)
    end
    local next_offset = {}
    for _, lane in box.space.partition:pairs({'lanes'}) do
        next_offset[lane[2]] = lane[3]
    end
    local receipts = commit(id).receipts
    t:is(#receipts, 8, 'a group is routed for itself')
    local gaps = 0
    for _, receipt in ipairs(receipts) do
        gaps = gaps + (receipt[4] == next_offset[receipt[3]] and 0 or 1)
        next_offset[receipt[3]] = next_offset[receipt[3]] + 1
    end
    t:is(gaps, 0, 'no offset between them is of somebody else')
    t:is(receipts[1][3] == receipts[3][3] and receipts[1][3] ~= receipts[2][3], true, 'groups keep their partitions')
end)

test:test('a batch of a thousand is one row, and keeps headers of its own', function(t)
    t:plan(4)
    local id = begin()
    stage(id, 'batch', 1000, {headers = {shared = 'yes'}, own = {{500, {mine = '1'}, 'x/y'}}})
    t:is(transactions.get(id).rows, 1, 'one row')
    local last = commit(id).receipts[1][2]
    local row = message.get(last - 499)
    t:is_deeply(row[F.own], {{0, {mine = '1'}, 'x/y'}}, 'the one has its own')
    t:is(message.get(last)[F.byte_from], 9 + 999 * 18, 'each has its place in the pack')
    t:is(#read('batch'), 1, 'one extent')
end)

test:test('an open upload keeps it from committing, until it is there or given up', function(t)
    t:plan(6)
    local id = begin()
    local one = harness.ticket('open', 1, {transaction_id = id}).upload
    local two = harness.ticket('open', 2, {transaction_id = id}).upload
    local ok, refusal = pcall(commit, id)
    t:is(not ok and refusal.code, 'transaction_conflict', 'refused')
    t:is_deeply(refusal.details.uploads, {one.id, two.id}, 'naming them')
    t:is(transactions.get(id).state, 'open', 'it stays open')
    harness.commit(one.id, 1)
    outcome.abort(two.id, GRACE)
    t:is(transactions.get(id).rows, 1, 'what was given up does not count')
    t:is(#commit(id).receipts, 1, 'the rest is committed')
    t:is(#read('open'), 1, 'one message')
end)

test:test('an announcement that is sent again with its key is the same upload', function(t)
    t:plan(7)
    local id, other = begin(), begin()
    local spec = {transaction_id = id, key = 'k', headers = {n = '1'}}
    local first = harness.ticket('keyed', 5, spec).upload
    t:is(harness.ticket('keyed', 5, spec).upload.id, first.id, 'open: the same ticket')
    t:is(transactions.get(id).rows, 1, 'one row')
    t:is(harness.refusal(harness.ticket, 'keyed', 6, spec), 'upload_conflict', 'not for another payload')
    t:isnt(harness.ticket('keyed', 5, {transaction_id = other, key = 'k'}).upload.id, first.id, 'nor transaction')
    t:isnt(harness.ticket('keyed-2', 5, {transaction_id = other, key = 'k'}).upload.id, first.id, 'nor subject')
    harness.commit(first.id, 5)
    t:is(harness.ticket('keyed', 5, spec).receipt.state, 'stored', 'its receipt when it is there')
    t:is(#commit(id).receipts, 1, 'nothing holds the commit up')
end)

test:test('abort leaves nothing', function(t)
    t:plan(9)
    subject_admin.put('gone', {quota = {messages = 10}})
    local id = begin()
    local _, packed = stage(id, 'gone', 3, by_producer{1, 2, 3})
    local stored = harness.ticket('gone', 5, {transaction_id = id}).upload
    harness.commit(stored.id, 5)
    local open = harness.ticket('gone', 5, {transaction_id = id}).upload
    t:is(quota.used(subjects.find('gone')).messages, 5, 'it reserved what it will take')
    t:is(abort(id).state, 'aborted', 'aborted')
    t:is(abort(id).state, 'aborted', 'and again')
    t:ok(object.in_trash(packed) and object.in_trash(stored.object_name) and object.in_trash(open.object_name),
        'payloads are in the trash')
    t:is(quota.used(subjects.find('gone')).messages, 0, 'nothing is reserved')
    t:is(#transactions.items(id), 0, 'no item is left')
    t:is(harness.commit(open.id, 5).state, 'aborted', 'a late payload changes nothing')
    t:is(harness.refusal(commit, id), 'transaction_ended', 'it cannot be committed')
    t:is(#stage(begin(), 'gone', 1, by_producer{1}).staged, 1, 'its producer is free, and its seqnos are new')
end)

test:test('receipts are kept for an hour and within a limit, the outcome for a day', function(t)
    t:plan(9)
    local outcomes = require('mts.transaction_outcome')
    local function hour_later()
        later(3600 * 1000)
        transaction_end.tick(1000, GRACE)
    end
    hour_later() -- what others left
    local most = outcomes.MOST_RECEIPTS
    local function committed(count)
        local id, marks = begin(), {}
        for i = 1, count do
            marks[i] = {index = i - 1, key = id .. i, digest = 'd'}
        end
        stage(id, 'kept', count, {marks = marks})
        commit(id)
        later(1) -- of those that commit in one millisecond, none is the oldest
        return id
    end
    local first = committed(3)
    t:is(outcomes.receipts(), 3, 'they are counted')
    outcomes.MOST_RECEIPTS = 5
    local second = committed(2)
    committed(2)
    outcomes.MOST_RECEIPTS = most
    t:is(outcomes.receipts(), 4, 'the oldest go when there are too many')
    t:is_deeply({transactions.get(first).state, transactions.get(first).receipts}, {'committed', nil},
        'of which the state is known')
    t:is(commit(first).state, 'committed', 'also to a commit that is sent again')
    t:is(#commit(second).receipts, 2, 'others have theirs')
    for _ = 1, 120 do
        begin(900) -- their end comes sooner
    end
    outcomes.MOST_RECEIPTS = 5
    for _ = 1, 3 do
        committed(2)
    end
    outcomes.MOST_RECEIPTS = most
    t:is(outcomes.receipts(), 4, 'also beside many that are open')
    local third = committed(1)
    hour_later()
    t:is_deeply({transactions.get(third).state, transactions.get(third).receipts}, {'committed', nil}, 'for an hour')
    t:is(outcomes.receipts(), 0, 'none are left')
    for _ = 1, 24 do
        hour_later()
    end
    t:is(harness.refusal(transactions.get, third), 'unknown_transaction', 'a day later it is unknown')
end)

test:test('a timeout is decided by the commit or by the tick, and outcomes are forgotten after a day', function(t)
    t:plan(8)
    local late, idle = begin(1), begin(2)
    local _, packed = stage(idle, 'timeout', 1)
    later(1000)
    t:is(transactions.get(late).state, 'aborting', 'out of time')
    t:is(harness.refusal(harness.ticket, 'timeout', 1, {transaction_id = late}), 'transaction_ended',
        'nothing can be added')
    local ok, refusal = pcall(commit, late)
    t:is(not ok and refusal.code, 'transaction_ended', 'too late')
    t:is(refusal.details.reason, 'timeout', 'with the reason')
    later(1000)
    t:ok(transaction_end.tick(100, GRACE) > 0, 'the tick has something to do')
    t:is(transactions.get(idle).state, 'aborted', 'it ends what nobody ended')
    t:ok(object.in_trash(packed), 'and leaves nothing')
    later(24 * 3600 * 1000 + 1)
    transaction_end.tick(100, GRACE)
    t:is(harness.refusal(transactions.get, idle), 'unknown_transaction', 'a day later it is unknown')
end)

test:test('an abort that was cut off is finished by the tick', function(t)
    t:plan(4)
    local id, seqnos = begin(), {}
    for i = 1, 600 do
        seqnos[i] = i
    end
    stage(id, 'cut', 600, by_producer(seqnos))
    txn.run(function()
        transactions.mark_aborting(transactions.need(id), 'aborted')
    end)
    t:is(stage(begin(), 'cut', 1, by_producer{601}).error.code, 'producer_in_transaction', 'it still holds something')
    t:ok(transaction_end.tick(100, GRACE) > 0, 'the tick goes on')
    t:is(transactions.get(id).state, 'aborted', 'to the end')
    t:is(#stage(begin(), 'cut', 1, by_producer{1}).staged, 1, 'nothing is held any more')
end)

test:test('what was begun before the clock was set back is over', function(t)
    t:plan(2)
    local id = begin(900)
    later(-1000)
    t:is(harness.refusal(commit, id), 'transaction_ended', 'its time is not known')
    t:is(transactions.get(id).state, 'aborted', 'so it is over')
    later(1000)
end)

test:test('a producer is in one transaction, in the order of its seqnos', function(t)
    t:plan(10)
    harness.publish('pro', 1, by_producer{1})
    local id, other = begin(), begin()
    stage(id, 'pro', 2, by_producer{5, 3})
    local ticket = harness.ticket('pro', 4, {producer_id = 'p', seqno = 4, transaction_id = id}).upload
    t:is(stage(other, 'pro', 1, by_producer{6}).error.code, 'producer_in_transaction', 'not in another')
    local outside = pack.commit(harness.pack{{subject = 'pro', sizes = {1},
        marks = {{index = 0, producer_id = 'p', seqno = 6}}}}, 3600)[1]
    t:is(outside.others[1].error.code, 'producer_in_transaction', 'not outside')
    t:is(harness.refusal(harness.ticket, 'pro', 1, {producer_id = 'p', seqno = 6}), 'producer_in_transaction',
        'nor by a ticket')
    t:is(stage(id, 'pro', 1, by_producer{3}).others[1].state, 'stored', 'sent again, it is stored once')
    t:is(stage(id, 'pro', 1, by_producer{1}).others[1].duplicate, true, 'what is stored is a duplicate')
    harness.commit(ticket.id, 4)
    commit(id)
    local rows = read('pro')
    t:is(#rows, 4, 'each once')
    t:is_deeply({rows[2][F.size], rows[3][F.size], rows[4][F.size]}, {10, 4, 10}, '3, 4, 5')
    t:is(rows[4][F.byte_from], 9, 'the fifth was the first in its pack')
    t:is(#harness.ticket('pro', 1, {producer_id = 'p', seqno = 7}).upload.id, 36, 'it is free again')
    t:is(stage(other, 'pro', 1, by_producer{8}).error.code, 'transaction_conflict',
        'and does not enter with an open upload outside')
end)

test:test('giving up an upload frees nothing that waits for the commit', function(t)
    t:plan(5)
    local id = begin()
    local first = harness.ticket('waits', 1, {producer_id = 'p', seqno = 1, transaction_id = id}).upload
    stage(id, 'waits', 1, by_producer{2})
    outcome.abort(first.id, GRACE)
    t:is(#read('waits'), 0, 'nothing is seen')
    local third = harness.ticket('waits', 3, {producer_id = 'p', seqno = 3, transaction_id = id}).upload
    harness.commit(third.id, 4)
    t:is(#read('waits'), 0, 'nor when one is rejected')
    local ok, refusal = pcall(commit, id)
    t:is(not ok and refusal.details.reason, 'rejected', 'which aborts all of it')
    t:is(refusal.details.upload_id, third.id, 'and is named')
    t:is(#read('waits'), 0, 'nothing is seen in the end')
end)

test:test('a new session of a producer ends the transaction of the old one', function(t)
    t:plan(5)
    local id = begin()
    local first = transaction_end.start_producer('fence', 'p', GRACE)
    local staged = stage(id, 'fence', 1, {marks = {{index = 0, producer_id = 'p', seqno = 1, epoch = first.epoch}}})
    local second = transaction_end.start_producer('fence', 'p', GRACE)
    t:is(second.last_seqno, nil, 'nothing was stored')
    t:is(transactions.get(id).reason, 'producer_fenced', 'aborted')
    t:is(upload.get(staged.staged[1][3]).receipt.state, 'aborted', 'with what it held')
    t:is(harness.refusal(commit, id), 'transaction_ended', 'the old one cannot commit')
    local again = stage(begin(), 'fence', 1, {marks = {{index = 0, producer_id = 'p', seqno = 1,
        epoch = second.epoch}}})
    t:is(#again.staged, 1, 'the new one begins at once')
end)

test:test('a transaction holds a thousand rows; what goes beyond changes nothing', function(t)
    t:plan(6)
    local id, seqnos = begin(), {}
    for i = 1, 999 do
        seqnos[i] = i
    end
    stage(id, 'large', 999, by_producer(seqnos))
    local answer, packed = stage(id, 'large', 2, by_producer{1000, 1001})
    t:is(answer.error.code, 'transaction_too_large', 'too large')
    t:ok(object.in_trash(packed), 'the pack is for nobody')
    t:is(transactions.get(id).rows, 999, 'none of the two was taken')
    stage(id, 'large', 1, by_producer{1000})
    t:is(harness.refusal(harness.ticket, 'large', 1, {transaction_id = id}), 'transaction_too_large', 'nor a ticket')
    t:is(#commit(id).receipts, 1000, 'a thousand are committed')
    local again = begin()
    for i = 1, 1000 do
        seqnos[i] = 1000 + i
    end
    stage(again, 'large', 1000, by_producer(seqnos))
    abort(again)
    t:is(#transactions.items(again), 0, 'a thousand are undone')
end)

test:test('an Idempotency-Key holds inside, and from the commit on outside', function(t)
    t:plan(6)
    local function keyed(digest)
        return {marks = {{index = 0, key = 'k', digest = digest}}}
    end
    local id = begin()
    local first = stage(id, 'key', 1, keyed('d1')).staged[1][3]
    t:is(stage(id, 'key', 1, keyed('d1')).others[1].upload_id, first, 'sent again, it is stored once')
    t:is(stage(id, 'key', 1, keyed('d2')).error.code, 'idempotency_conflict', 'another body is a conflict')
    local sequence = commit(id).receipts[1][2]
    local outside = pack.commit(harness.pack{{subject = 'key', sizes = {10}, marks = keyed('d1').marks}}, 3600)[1]
    t:is(outside.others[1].sequence, sequence, 'sent again after the commit, it has its sequence')
    local late = begin()
    stage(late, 'key', 1, {marks = {{index = 0, key = 'x', digest = 'd'}}})
    harness.publish('key', 1, {marks = {{index = 0, key = 'x', digest = 'd'}}})
    t:is(harness.refusal(commit, late), 'transaction_conflict', 'a key used outside meanwhile is not used twice')
    t:is(transactions.get(late).reason, 'idempotency_key_used', 'and that is said')
    t:is(#read('key'), 2, 'two messages')
end)

test:test('what was deleted meanwhile aborts it', function(t)
    t:plan(6)
    local id = begin()
    stage(id, 'stays', 1)
    local _, packed = stage(id, 'deleted', 1)
    subject_admin.delete('deleted', GRACE)
    t:is(harness.refusal(commit, id), 'transaction_conflict', 'refused')
    t:is(transactions.get(id).reason, 'subject_deleted', 'with the reason')
    t:is(#read('stays'), 0, 'nothing of it is seen')
    t:ok(object.in_trash(packed), 'nothing is left')
    local again = begin()
    stage(again, 'deleted', 1)
    subject_admin.delete('deleted', GRACE)
    harness.publish('deleted', 1)
    t:is(harness.refusal(commit, again), 'transaction_conflict', 'refused also when it was made again')
    t:is(#read('deleted'), 1, 'which has only its own')
end)

test:test('a payload that arrives after the end goes to the trash', function(t)
    t:plan(2)
    local id = begin(1)
    local ticket = harness.ticket('latecomer', 3, {transaction_id = id}).upload
    later(1000)
    t:is(harness.commit(ticket.id, 3).state, 'aborted', 'its transaction is over')
    t:ok(object.in_trash(ticket.object_name), 'its payload goes')
end)

test:test('unknown ones and wrong timeouts are refused', function(t)
    t:plan(4)
    t:is(harness.refusal(commit, 'nobody'), 'unknown_transaction', 'commit')
    t:is(stage('nobody', 'none', 1).error.code, 'unknown_transaction', 'publish')
    t:is(harness.refusal(transactions.begin, 901), 'bad_request', 'too long')
    t:is(subjects.find('none'), nil, 'what is refused leaves no subject behind')
end)

harness.finish(test)
