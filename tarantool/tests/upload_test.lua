package.path = require('fio').dirname(require('fio').abspath(arg[0])) .. '/?.lua;' .. package.path
local harness = require('harness')
local message = require('mts.message')
local outcome = require('mts.upload_outcome')
local schema = require('mts.schema')
local tap = require('tap')
local upload = require('mts.upload')
local upload_due = require('mts.upload_due')

local test = tap.test('uploads')
test:plan(8)

test:test('one upload gets one sequence, however often it is reported', function(t)
    t:plan(5)
    local ticket = harness.ticket('orders', 10).upload
    t:is(ticket.state, 'open', 'a ticket is open')
    t:like(ticket.object_name, '^m/orders/1/', 'its key holds subject and incarnation')
    local first = harness.commit(ticket.id, 10)
    t:is(first.state, 'committed', 'the first report commits')
    local second = harness.commit(ticket.id, 10)
    t:is(second.sequence, first.sequence, 'the second gets the same sequence')
    t:is(second.duplicate, true, 'and is told so')
end)

test:test('a payload that does not fit its ticket is rejected and goes to the trash', function(t)
    t:plan(4)
    local ticket = harness.ticket('orders', 10).upload
    local receipt = harness.commit(ticket.id, 11)
    t:is(receipt.state, 'rejected', 'rejected')
    t:like(receipt.reason, 'size_mismatch', 'with a reason')
    t:ok(box.space.trash:get(ticket.object_name), 'the object is in the trash')
    t:is(harness.commit(ticket.id, 10).state, 'rejected', 'and stays rejected')
end)

test:test('abort is idempotent, and a committed upload cannot be aborted', function(t)
    t:plan(4)
    local ticket = harness.ticket('orders', 10).upload
    t:is(outcome.abort(ticket.id, 900).receipt.state, 'aborted', 'aborted')
    t:is(outcome.abort(ticket.id, 900).receipt.state, 'aborted', 'and again')
    t:is(harness.commit(ticket.id, 10).state, 'aborted', 'a late event changes nothing')
    local committed = harness.ticket('orders', 1).upload
    harness.commit(committed.id, 1)
    t:is(harness.refusal(outcome.abort, committed.id, 900), 'upload_final', 'committed stays')
end)

test:test('a named producer becomes visible in seqno order', function(t)
    t:plan(9)
    local one = harness.ticket('lane', 1, {producer_id = 'p', seqno = 1}).upload
    local two = harness.ticket('lane', 2, {producer_id = 'p', seqno = 2}).upload
    local five = harness.ticket('lane', 5, {producer_id = 'p', seqno = 5}).upload
    local waiting = harness.commit(five.id, 5)
    t:is(waiting.state, 'stored', 'a finished upload behind an open one waits')
    t:is(waiting.waits_for, one.id, 'and says for whom')
    t:is(harness.commit(two.id, 2).state, 'stored', 'so does the second')
    local first = harness.commit(one.id, 1)
    t:is(first.state, 'committed', 'the first is committed')
    t:is(upload.get(two.id).receipt.sequence, first.sequence + 1, 'the second follows it')
    t:is(upload.get(five.id).receipt.sequence, first.sequence + 2, 'gaps are allowed')
    local again = harness.ticket('lane', 2, {producer_id = 'p', seqno = 2}).receipt
    t:is(again.sequence, first.sequence + 1, 'a known seqno is a duplicate with proof')
    t:is(harness.refusal(harness.ticket, 'lane', 3, {producer_id = 'p', seqno = 3}), 'seqno_skipped', 'skipped')
    t:is(box.space.producer_upload:len(), 0, 'nothing is left pending')
end)

test:test('an abort frees those that wait behind it', function(t)
    t:plan(2)
    local one = harness.ticket('free', 1, {producer_id = 'p', seqno = 1}).upload
    local two = harness.ticket('free', 1, {producer_id = 'p', seqno = 2}).upload
    harness.commit(two.id, 1)
    outcome.abort(one.id, 900)
    t:is(upload.get(two.id).receipt.state, 'committed', 'the second is visible')
    t:is(harness.refusal(harness.ticket, 'free', 1, {producer_id = 'p', seqno = 1}), 'seqno_skipped',
        'the aborted one was passed over')
end)

test:test('the chains of all producers that a transaction frees share one bound', function(t)
    t:plan(5)
    local firsts, last = {}, {}
    for _, name in ipairs{'p', 'q'} do
        table.insert(firsts, {harness.ticket('bound', 1, {producer_id = name, seqno = 1}).upload.id, 1, nil, true})
        for seqno = 2, schema.PER_TRANSACTION do
            last[name] = harness.ticket('bound', 1, {producer_id = name, seqno = seqno}).upload.id
            harness.commit(last[name], 1)
        end
    end
    outcome.commit(firsts, 900)
    t:is(upload.get(last.p).receipt.state, 'committed', 'the first chain is free')
    t:is(upload.get(last.q).receipt.state, 'stored', 'the second, as long as the first, is not')
    t:is(#message.page('bound', 0, 10000).rows, 2 + schema.PER_TRANSACTION, 'no more than the bound')
    local due = upload_due.due(10).uploads
    t:is(#due, 1, 'the reconciler is told where to go on')
    outcome.resume(due[1].id, 900)
    t:is(upload.get(last.q).receipt.state, 'committed', 'and frees the rest')
end)

test:test('a ticket for an open seqno is the same upload', function(t)
    t:plan(2)
    local first = harness.ticket('same', 7, {producer_id = 'p', seqno = 1}).upload
    t:is(harness.ticket('same', 7, {producer_id = 'p', seqno = 1}).upload.id, first.id, 'the same')
    t:is(harness.refusal(harness.ticket, 'same', 8, {producer_id = 'p', seqno = 1}), 'upload_conflict',
        'another size is a conflict')
end)

test:test('a new session fences the old one', function(t)
    t:plan(5)
    local old = outcome.start_producer('fence', 'p', 900).epoch
    local open = harness.ticket('fence', 1, {producer_id = 'p', seqno = 1, epoch = old}).upload
    local stored = harness.ticket('fence', 1, {producer_id = 'p', seqno = 2, epoch = old}).upload
    harness.commit(stored.id, 1)
    local new = outcome.start_producer('fence', 'p', 900).epoch
    t:ok(new > old, 'a higher epoch')
    t:is(upload.get(open.id).receipt.state, 'aborted', 'open tickets of the old one are aborted')
    t:is(upload.get(stored.id).receipt.state, 'committed', 'stored ones are kept')
    t:is(harness.refusal(harness.ticket, 'fence', 1, {producer_id = 'p', seqno = 3, epoch = old}), 'producer_fenced',
        'the old epoch is refused')
    t:is(harness.refusal(harness.ticket, 'fence', 1, {producer_id = 'p', seqno = 3, epoch = new + 1}), 'bad_request',
        'so is one never given')
end)

harness.finish(test)
