package.path = require('fio').dirname(require('fio').abspath(arg[0])) .. '/?.lua;' .. package.path
local harness = require('harness')
local message = require('mts.message')
local pack = require('mts.pack')
local schema = require('mts.schema')
local subject_admin = require('mts.subject_admin')
local tap = require('tap')
local transactions = require('mts.transaction')

local F = schema.message
local test = tap.test('packs')
test:plan(9)

test:test('a pack is one row, keyed by its last sequence', function(t)
    t:plan(8)
    local result = pack.commit(harness.pack{{subject = 'a', sizes = {5, 6, 7}}}, 3600)[1]
    t:is_deeply({result.runs[1][1], result.runs[1][2]}, {0, 3}, 'one run of three')
    local first = result.runs[1][3]
    t:is(box.space.message:len(), 1, 'one row')
    local middle = message.get(first + 1)
    t:is(middle[F.sequence], first + 1, 'the second message is found')
    t:is(middle[F.byte_from], 9 + 5 + 8, 'its frame starts behind the first')
    t:is(middle[F.size], 6, 'its size is its own')
    t:is(middle[F.offset], 1, 'its offset too')
    local page = message.page('a', first + 1, 1)
    t:is(page.rows[1][F.sequence], first + 1, 'a page starts in the middle')
    t:is(page.next_sequence, first + 2, 'and goes on behind it')
end)

test:test('own headers follow their message', function(t)
    t:plan(2)
    local group = {subject = 'own', sizes = {1, 1, 1}, headers = {shared = 'yes'}, own = {{1, {mine = '1'}, 'x/y'}}}
    local first = pack.commit(harness.pack{group}, 3600)[1].runs[1][3]
    t:is(message.get(first)[F.own], nil, 'the first has none')
    t:is_deeply(message.get(first + 1)[F.own], {{0, {mine = '1'}, 'x/y'}}, 'the second has its own')
end)

test:test('behind a message in a codec that its subject does not take, none of its producer is stored', function(t)
    t:plan(4)
    subject_admin.put('plain', {codecs = {'raw'}})
    local function sent(seqno, codec)
        return {subject = 'plain', sizes = {1}, codec = codec, marks = {{index = 0, producer_id = 'p', seqno = seqno}}}
    end
    local first, second, third = unpack(pack.commit(harness.pack{sent(1), sent(2, 'gzip'), sent(3)}, 3600))
    t:is(#first.runs, 1, 'the first is stored')
    t:is(second.others[1].error.code, 'codec_not_allowed', 'the second is refused')
    t:is(third.others[1] and third.others[1].error.code, 'codec_not_allowed', 'and the third with it')
    t:is(pack.commit(harness.pack{sent(2)}, 3600)[1].others[1], nil, 'so the second is not passed over')
end)

test:test('duplicates end the extent before them and are answered one by one', function(t)
    t:plan(6)
    local function marked(seqnos)
        local group = {subject = 'dup', sizes = {}, marks = {}}
        for i, seqno in ipairs(seqnos) do
            table.insert(group.sizes, 10)
            table.insert(group.marks, {index = i - 1, producer_id = 'p', seqno = seqno})
        end
        return pack.commit(harness.pack{group}, 3600)[1]
    end
    local first = marked{1, 2, 3}
    t:is(#first.runs, 1, 'seqnos that go up share an extent')
    local second = marked{2, 4, 3, 5}
    t:is(#second.others, 2, 'two are known')
    t:is(second.others[1].sequence, first.runs[1][3] + 1, 'seqno 2 has its old sequence')
    t:is(second.others[1].duplicate, true, 'and is a duplicate')
    t:is(#second.runs, 2, 'the others are stored')
    local rows = message.page('dup', 0, 10).rows
    t:is(rows[3][F.byte_from], 9 + 3 * 18, 'the byte range steps over what was left out')
end)

test:test('an idempotency key is stored once', function(t)
    t:plan(4)
    local function keyed(digest)
        return pack.commit(harness.pack{{subject = 'key', sizes = {3},
            marks = {{index = 0, key = 'k', digest = digest}}}}, 3600)[1]
    end
    local first = keyed('d1')
    t:is(#first.runs, 1, 'the first is stored')
    t:is(keyed('d1').others[1].sequence, first.runs[1][3], 'the second gets its sequence')
    t:is(keyed('d2').others[1].error.code, 'idempotency_conflict', 'another body is a conflict')
    local unused = 0
    for _, row in box.space.trash:pairs() do
        unused = unused + (row[schema.trash.reason] == 'unused_pack' and 1 or 0)
    end
    t:is(unused, 2, 'packs that nothing points at go to the trash')
end)

test:test('a frame behind an open seqno waits as stored and holds the pack', function(t)
    t:plan(5)
    local open = harness.ticket('wait', 4, {producer_id = 'p', seqno = 1}).upload
    local packed = harness.pack{{subject = 'wait', sizes = {3}, marks = {{index = 0, producer_id = 'p', seqno = 2}}}}
    local result = pack.commit(packed, 3600)[1].others[1]
    t:is(result.state, 'stored', 'it waits')
    t:is(box.space.object:get(packed.object_name)[2], 1, 'the pack has one reference')
    harness.commit(open.id, 4)
    local rows = message.page('wait', 0, 10).rows
    t:is(#rows, 2, 'then both are visible')
    t:is(rows[2][F.object_name], packed.object_name, 'the second in its pack')
    t:is(rows[2][F.byte_from], 9, 'at its place')
end)

test:test('a batch in a transaction is staged as a whole, whatever its codecs', function(t)
    t:plan(4)
    subject_admin.put('whole', {codecs = {'raw'}})
    local id = transactions.begin(60).transaction_id
    local batch = harness.pack{{subject = 'whole', sizes = {1}, transaction_id = id},
        {subject = 'whole', sizes = {1}, transaction_id = id, codec = 'gzip', byte_from = 18}}
    batch.all_or_none = true
    local answers = pack.commit(batch, 3600)
    t:is_deeply({answers[1].error.code, answers[2].error.code}, {'codec_not_allowed', 'codec_not_allowed'},
        'one part is refused, so all of it is')
    t:is(transactions.get(id).rows, 0, 'nothing of it is in the transaction')
    t:ok(box.space.trash:get(batch.object_name), 'and the pack goes')
    subject_admin.put('whole', {codecs = {'raw', 'gzip'}})
    batch.object_name = harness.pack{}.object_name
    pack.commit(batch, 3600)
    t:is(transactions.get(id).rows, 2, 'sent again, it is there once')
end)

test:test('separate requests in a transaction are staged or refused one by one', function(t)
    t:plan(5)
    subject_admin.put('single', {codecs = {'raw'}, quota = {messages = 4}})
    local id, owner = transactions.begin(60).transaction_id, {producer_id = 'p', seqno = 1}
    local first = harness.pack{{subject = 'single', sizes = {1, 1, 1, 2}, transaction_id = id,
        own = {{1, {mine = 'one'}, box.NULL}, {3, {mine = 'three'}, box.NULL}},
        marks = {{index = 0, key = 'k', digest = 'd'}, {index = 2, key = 'k', digest = 'another'},
            {index = 3, producer_id = owner.producer_id, seqno = owner.seqno}}},
        {subject = 'single', sizes = {1}, transaction_id = id, codec = 'gzip', byte_from = 60}}
    local answers = pack.commit(first, 3600)
    t:is_deeply({answers[1].staged[1][1], answers[1].staged[2][1], answers[1].staged[3][1]}, {0, 1, 3},
        'those that are right')
    t:is_deeply({answers[1].others[1].index, answers[1].others[1].error.code, answers[2].others[1].error.code},
        {2, 'idempotency_conflict', 'codec_not_allowed'}, 'those that are not have their own answer')
    t:is(transactions.get(id).rows, 3, 'each is a row')
    local second = harness.pack{{subject = 'single', sizes = {1, 1}, transaction_id = id}}
    answers = pack.commit(second, 3600)
    t:is_deeply({#answers[1].staged, answers[1].others[1].error.code}, {1, 'quota_exceeded'}, 'one finds room')
    require('mts.transaction_end').commit(id, 900)
    local rows, found = message.page('single', 0, 10).rows, {}
    for _, row in ipairs(rows) do
        table.insert(found, ('%s@%d'):format(row[F.headers].mine or '-', tonumber(row[F.byte_from])))
    end
    t:is_deeply(found, {'-@9', 'one@18', 'three@36', '-@9'}, 'each with its own bytes and headers')
end)

test:test('an old pack is refused', function(t)
    t:plan(2)
    local old = harness.pack{{subject = 'old', sizes = {3}}}
    old.object_name = '_mts/packs/00000000-0000-7000-8000-000000000000'
    t:is(harness.refusal(pack.commit, old, 3600), 'unavailable', 'refused')
    t:is(#message.page('old', 0, 10).rows, 0, 'and nothing is visible')
end)

harness.finish(test)
