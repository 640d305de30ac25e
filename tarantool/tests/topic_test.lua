-- Subjects and their settings: made, described, listed, changed; codecs; headers of a producer's session.
package.path = require('fio').dirname(require('fio').abspath(arg[0])) .. '/?.lua;' .. package.path
local harness = require('harness')
local admin = require('mts.subject_admin')
local message = require('mts.message')
local outcome = require('mts.upload_outcome')
local pack = require('mts.pack')
local producer = require('mts.producer')
local schema = require('mts.schema')
local status = require('mts.status')
local tap = require('tap')
local upload = require('mts.upload')

local F = schema.message
local EMPTY = setmetatable({}, {__serialize = 'map'})
local test = tap.test('topics')
test:plan(11)

-- Code and field of the refusal.
local function refused(wanted)
    local ok, refusal = pcall(admin.put, 'settings', wanted)
    return {not ok and refusal.code, not ok and refusal.details.field}
end

test:test('a subject is made with its settings and described with all of them', function(t)
    t:plan(9)
    local made = admin.put('orders', {partitions = 4, codecs = {'raw', 'gzip'}, quota = {messages = 10}})
    t:is(made.created, true, 'it was made')
    local subject = admin.get('orders')
    t:is(#subject.partitions, 4, 'four partitions')
    t:is_deeply(subject.settings.codecs, {'raw', 'gzip'}, 'codecs as given')
    t:is(subject.settings.quota.messages, 10, 'a quota')
    t:is(subject.settings.autopartitioning.mode, 'disabled', 'defaults for the rest')
    t:is(subject.settings.autopartitioning.max_partitions, 64, 'with their numbers')
    t:is(subject.latest_sequence, 0, 'nothing is in it')
    t:is(admin.put('orders', EMPTY).created, false, 'the second time it is there')
    t:is(harness.refusal(admin.get, 'nobody'), 'unknown_subject', 'another is unknown')
end)

test:test('what a change does not name stays, and null takes back', function(t)
    t:plan(5)
    admin.put('change', {quota = {messages = 10, bytes = 2 ^ 52}, codecs = {'zstd'}})
    local changed = admin.put('change', {quota = {rate = 5}}).subject.settings
    t:is_deeply({changed.quota.messages, changed.quota.bytes, changed.quota.rate}, {10, 2 ^ 52, 5}, 'quotas add up')
    t:is_deeply(changed.codecs, {'zstd'}, 'codecs stay')
    changed = admin.put('change', {quota = {messages = box.NULL}, codecs = box.NULL}).subject.settings
    t:is(changed.quota.messages, nil, 'null removes a quota')
    t:is(changed.quota.rate, 5, 'and only that')
    t:is_deeply(changed.codecs, {'raw', 'gzip', 'zstd'}, 'null is the default again')
end)

test:test('a wrong setting is refused with the name of its field, and nothing changes', function(t)
    local wrong = {
        {{partitions = 0}, 'partitions'}, {{partitions = 257}, 'partitions'}, {{partitions = 1.5}, 'partitions'},
        {{partitions = '2'}, 'partitions'}, {{partitions = 18446744073709551615ULL}, 'partitions'},
        {{codecs = {}}, 'codecs'}, {{codecs = 'raw'}, 'codecs'}, {{codecs = {'lzop'}}, 'codecs'},
        {{quota = 5}, 'quota'}, {{quota = {messages = -1}}, 'quota.messages'}, {{quota = {size = 1}}, 'quota.size'},
        {{quota = {rate = true}}, 'quota.rate'}, {{quota = {bytes = 9007199254740993ULL}}, 'quota.bytes'},
        {{autopartitioning = {mode = 'on'}}, 'autopartitioning.mode'},
        {{autopartitioning = {utilization = 101}}, 'autopartitioning.utilization'},
        {{autopartitioning = {max_partitions = 257}}, 'autopartitioning.max_partitions'},
        {{autopartitioning = {stabilization = 0}}, 'autopartitioning.stabilization'}, {{colour = 'red'}, 'colour'},
    }
    t:plan(#wrong + 3)
    for _, case in ipairs(wrong) do
        t:is_deeply(refused(case[1]), {'bad_request', case[2]}, case[2])
    end
    t:is(harness.refusal(admin.get, 'settings'), 'unknown_subject', 'no subject was made')
    local _, refusal = pcall(admin.put, 'settings', {codecs = {'lzop'}})
    t:like(refusal.message, 'lzop.*raw, gzip, zstd', 'a codec nobody has is named, and those there are')
    t:is(admin.put('large', {quota = {bytes = 9007199254740992ULL}}).subject.settings.quota.bytes, 2 ^ 53,
        'a large number is a number')
end)

test:test('autopartitioning, once on, is paused but not disabled', function(t)
    t:plan(6)
    local function mode(wanted)
        return harness.refusal(admin.put, 'auto', {autopartitioning = {mode = wanted}})
    end
    t:is(mode('up').subject.settings.autopartitioning.mode, 'up', 'on')
    t:is(mode('disabled'), 'bad_request', 'not off')
    t:is(harness.refusal(admin.put, 'auto', {autopartitioning = box.NULL}), 'bad_request', 'not by null either')
    t:is(mode('paused').subject.settings.autopartitioning.mode, 'paused', 'paused')
    t:is(mode('disabled'), 'bad_request', 'still not off')
    t:is(mode('up').subject.settings.autopartitioning.mode, 'up', 'on again')
end)

test:test('subjects are listed in order, by prefix and in pages', function(t)
    t:plan(4)
    for _, name in ipairs{'list.a', 'list.b', 'list.c', 'lisu'} do
        admin.put(name, {partitions = 2})
    end
    local function names(after, limit, prefix)
        local found = {}
        for _, entry in ipairs(status.subjects(after, limit, prefix).subjects) do
            table.insert(found, entry.subject)
        end
        return found
    end
    t:is_deeply(names('', 10, 'list.'), {'list.a', 'list.b', 'list.c'}, 'by prefix')
    t:is_deeply(names('list.a', 1, 'list.'), {'list.b'}, 'a page')
    t:is_deeply(names('list.c', 10, 'list.'), {}, 'the end')
    t:is(status.subjects('list', 1).subjects[1].partitions, 2, 'with its partitions')
end)

test:test('a list of subjects with many partitions comes in shorter pages', function(t)
    t:plan(3)
    for i = 1, 9 do
        admin.put('wide.' .. i, {partitions = 256})
    end
    local seen, after, most = 0, '', 0
    repeat
        local page = status.subjects(after, 1000, 'wide.')
        seen, most = seen + #page.subjects, math.max(most, #page.subjects)
        after = page.more and page.subjects[#page.subjects].subject
    until not after
    t:is(seen, 9, 'all of them')
    t:ok(most <= 4, 'so that one call never takes long')
    t:is(status.subjects('', 9, 'wide.').more, true, 'and says that there are more')
end)

test:test('only codecs of the subject are taken; raw is stored as none', function(t)
    t:plan(9)
    admin.put('codecs', {codecs = {'raw', 'gzip'}})
    local ok, refusal = pcall(harness.ticket, 'codecs', 1, {codec = 'zstd'})
    t:is(not ok and refusal.code, 'codec_not_allowed', 'a ticket with another is refused')
    t:like(refusal.message, 'zstd.*raw, gzip', 'and told which are allowed')
    t:is(harness.refusal(harness.ticket, 'nobody', 1, {codec = 'lzop'}), 'codec_not_allowed', 'lzop everywhere')
    local function stored(codec)
        local ticket = harness.ticket('codecs', 1, {codec = codec}).upload
        return message.get(harness.commit(ticket.id, 1).sequence)[F.codec]
    end
    t:is(stored('gzip'), 'gzip', 'the codec stands in the message')
    t:is(stored('raw'), nil, 'raw is none')
    local function packed(codec)
        return pack.commit(harness.pack{{subject = 'codecs', sizes = {1, 1}, codec = codec}}, 3600)[1]
    end
    t:is(message.get(packed('gzip').runs[1][3])[F.codec], 'gzip', 'in packs as well')
    local others = packed('zstd').others
    t:is_deeply({others[1].error.code, others[2].error.code}, {'codec_not_allowed', 'codec_not_allowed'},
        'frame by frame')
    admin.put('codecs', {codecs = {'gzip'}})
    t:is(harness.refusal(harness.ticket, 'codecs', 1), 'codec_not_allowed', 'raw may be left out of the list')
    pack.commit(harness.pack{{subject = 'nosuch', sizes = {1}, codec = 'lzop'}}, 3600)
    t:is(harness.refusal(admin.get, 'nosuch'), 'unknown_subject', 'what is refused leaves no subject behind')
end)

test:test('headers of a session go with its messages, below their own', function(t)
    t:plan(7)
    local function start(headers)
        return outcome.start_producer('session', 'p', 900, headers).epoch
    end
    local epoch = start{source = 'till', kind = 'session'}
    local ticket = harness.ticket('session', 1, {producer_id = 'p', seqno = 1, epoch = epoch, headers = {kind = 'own'}})
    local sequence = harness.commit(ticket.upload.id, 1).sequence
    t:is_deeply(message.get(sequence)[F.headers], {source = 'till', kind = 'own'}, 'an upload has both')
    ticket = harness.ticket('session', 1, {producer_id = 'p', seqno = 2})
    sequence = harness.commit(ticket.upload.id, 1).sequence
    t:is_deeply(message.get(sequence)[F.headers], {}, 'one that does not name the session has none')
    local result = pack.commit(harness.pack{{subject = 'session', sizes = {1, 1, 1}, headers = {shared = 'yes'},
        own = {{1, {kind = 'own'}}}, marks = {
            {index = 0, producer_id = 'p', seqno = 3, epoch = epoch},
            {index = 1, producer_id = 'p', seqno = 4, epoch = epoch},
            {index = 2, producer_id = 'q', seqno = 1}}}}, 3600)[1]
    t:is(#result.runs, 2, 'frames of a session are an extent')
    local first = message.get(result.runs[1][3])
    t:is_deeply(first[F.headers], {source = 'till', kind = 'session', shared = 'yes'}, 'the shared headers over it')
    t:is_deeply(message.get(result.runs[1][3] + 1)[F.own][1][2], {source = 'till', kind = 'own'}, 'own ones over it')
    t:is_deeply(message.get(result.runs[2][3])[F.headers], {shared = 'yes'}, 'its neighbour has none of it')
    start()
    t:is(producer.find('session', 'p')[schema.producer.headers], nil, 'a new session has its own, or none')
end)

test:test('a frame or upload that waits keeps the headers of the session it was sent in', function(t)
    t:plan(4)
    local epoch = outcome.start_producer('kept', 'p', 900, {run = '1'}).epoch
    harness.ticket('kept', 1, {producer_id = 'p', seqno = 1, epoch = epoch})
    local two = harness.ticket('kept', 1, {producer_id = 'p', seqno = 2, epoch = epoch}).upload
    harness.commit(two.id, 1)
    pack.commit(harness.pack{{subject = 'kept', sizes = {1},
        marks = {{index = 0, producer_id = 'p', seqno = 3, epoch = epoch}}}}, 3600)
    t:is(harness.ticket('kept', 1, {producer_id = 'p', seqno = 2, epoch = epoch}).receipt.state, 'stored', 'it waits')
    epoch = outcome.start_producer('kept', 'p', 900, {run = '2'}).epoch
    local rows = message.page('kept', 0, 10).rows
    t:is_deeply({rows[1][F.headers], rows[2][F.headers]}, {{run = '1'}, {run = '1'}}, 'both have those of the first')
    t:is(harness.ticket('kept', 1, {producer_id = 'p', seqno = 2, epoch = epoch}).receipt.duplicate, true, 'known')
    t:is(upload.get(two.id).receipt.state, 'committed', 'and visible')
end)

test:test('another group or codec for an open seqno is a conflict', function(t)
    t:plan(3)
    local function ask(more)
        more.producer_id, more.seqno = 'p', 1
        return harness.refusal(harness.ticket, 'conflict', 1, more)
    end
    ask{group = 'g', codec = 'gzip'}
    t:is(ask{group = 'h', codec = 'gzip'}, 'upload_conflict', 'group')
    t:is(ask{group = 'g'}, 'upload_conflict', 'codec')
    t:is(ask{group = 'g', codec = 'gzip'}.upload.group, 'g', 'the same is the same')
end)

test:test('producers and groups have names of up to 2,048 characters', function(t)
    t:plan(5)
    local long = ('я'):rep(2048)
    admin.put('long', {partitions = 2})
    local ticket = harness.ticket('long', 1, {producer_id = long, seqno = 1, group = long}).upload
    t:is(harness.commit(ticket.id, 1).state, 'committed', 'as long as that is fine')
    t:is(harness.refusal(harness.ticket, 'long', 1, {producer_id = long .. 'x', seqno = 1}), 'bad_request',
        'a producer')
    t:is(harness.refusal(harness.ticket, 'long', 1, {group = long .. 'x'}), 'bad_request', 'a group')
    local result = pack.commit(harness.pack{{subject = 'long', sizes = {1, 1},
        marks = {{index = 0, group = long .. 'x', hash = 1}, {index = 1, group = long, hash = 1}}}}, 3600)[1]
    t:is(result.others[1].error.code, 'bad_request', 'in a pack the frame alone is refused')
    t:is(#result.runs, 1, 'and its neighbour stored')
end)

harness.finish(test)
