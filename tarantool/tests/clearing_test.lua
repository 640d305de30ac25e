-- Deleting subjects (rule 21): gone at once, cleared away in the background, and nothing old hits what is made again.
local fio = require('fio')
local script = fio.abspath(arg[0]) -- before the database changes the folder
package.path = fio.dirname(script) .. '/?.lua;' .. package.path
local harness = require('harness')
local admin = require('mts.subject_admin')
local clock = require('mts.clock')
local commit = require('mts.commit')
local consumer = require('mts.consumer')
local ffi = require('ffi')
local message = require('mts.message')
local outcome = require('mts.upload_outcome')
local pack = require('mts.pack')
local producer = require('mts.producer')
local quarantine = require('mts.quarantine')
local clearing = require('mts.clearing')
local schema = require('mts.schema')
local spec_api = require('mts.spec_api')
local tap = require('tap')
local upload = require('mts.upload')

local F = schema.message

local function publish(subject, sizes, marks)
    return pack.commit(harness.pack{{subject = subject, sizes = sizes, marks = marks}}, 3600)[1]
end

local function count(space, field, value)
    local found = 0
    for _, row in box.space[space]:pairs() do
        found = found + (row[field] == value and 1 or 0)
    end
    return found
end

-- The parts that run as processes of their own: make and delete a subject; clear away until killed; look what is left.
local PARTS = {}

function PARTS.make()
    for i = 1, 40 do
        harness.commit(harness.ticket('doomed', 1, {producer_id = 'p' .. i % 3, seqno = i}).upload.id, 1)
        publish('doomed', {1, 1}, {{index = 0, key = 'k' .. i, digest = 'd'}})
    end
    box.begin()
    box.space.subject:delete('doomed')
    clearing.begin('doomed', 1)
    box.commit()
end

function PARTS.kill(point)
    ffi.cdef('int kill(int pid, int sig);')
    local seen = 0
    for _, name in ipairs{'message', 'idempotency', 'producer_range', 'producer', 'trash', 'purge'} do
        box.space[name]:on_replace(function()
            seen = seen + 1
            if seen == tonumber(point) then
                ffi.C.kill(require('tarantool').pid(), 9)
            end
        end)
    end
    repeat
        local more = admin.clear(7).more
    until not more
    print('survived')
end

function PARTS.look()
    admin.clear(100000)
    print(('%d rows, %d keys, %d ranges, %d producers, %d jobs, %d in the trash'):format(box.space.message:len(),
        box.space.idempotency:len(), box.space.producer_range:len(), box.space.producer:len(), box.space.purge:len(),
        count('trash', schema.trash.reason, 'subject_deleted')))
end

if arg[1] then
    PARTS[arg[1]](arg[2])
    os.exit(0)
end

local function run(folder, ...)
    local command = ('MTS_TEST_DIR=%s %s %s %s 2>/dev/null'):format(folder, arg[-1], script, table.concat({...}, ' '))
    local process = io.popen(command, 'r')
    local output = process:read('*a')
    process:close()
    return output
end

local test = tap.test('clearing')
test:plan(13)

test:test('a session of a producer that was of another incarnation, or forgotten, stays fenced', function(t)
    t:plan(11)
    local milliseconds, seconds = clock.milliseconds, clock.seconds
    local now = milliseconds()
    clock.milliseconds = function() return now end
    local function start()
        return outcome.start_producer('zombie', 'p', 900, {run = 'new'}).epoch
    end
    local function publish_as(epoch, seqno)
        return publish('zombie', {1}, {{index = 0, producer_id = 'p', seqno = seqno, epoch = epoch}}).others[1]
    end
    for _, forget in ipairs{function() admin.delete('zombie') end, function()
        clock.seconds = function() return seconds() + 15 * 86400 end
        admin.trim()
        clock.seconds = seconds
        t:is(producer.find('zombie', 'p'), nil, 'forgotten')
    end} do
        local old = start()
        publish_as(old, 5)
        forget()
        t:is(harness.refusal(harness.ticket, 'zombie', 1, {producer_id = 'p', seqno = 6, epoch = old}), 'bad_request',
            'nobody knows it')
        local new = start()
        t:is(publish_as(new, 1), nil, 'the new one begins')
        t:is(harness.refusal(harness.ticket, 'zombie', 1, {producer_id = 'p', seqno = 6, epoch = old}),
            'producer_fenced', 'the old one is fenced')
        t:is(publish_as(old, 6).error.code, 'producer_fenced', 'whatever it does')
        t:is(publish_as(new, 2), nil, 'and the new one goes on')
    end
    clock.milliseconds = milliseconds
end)

test:test('of a pack that another subject shares, its own rows alone let go', function(t)
    t:plan(4)
    pack.commit(harness.pack{{subject = 'kept', sizes = {1}}, {subject = 'left', sizes = {1, 1}},
        {subject = 'left', sizes = {1}, headers = {another = 'extent'}}}, 3600)
    local name = message.page('kept', 0, 1).rows[1][F.object_name]
    t:is(box.space.object:get(name)[schema.object.refs], 3, 'three rows point at it')
    admin.delete('left')
    t:is(box.space.object:get(name)[schema.object.refs], 1, 'one does')
    t:is(box.space.trash:get(name), nil, 'and it stays')
    admin.delete('kept')
    t:ok(box.space.trash:get(name), 'until that one goes')
end)

test:test('a deleted subject is gone at once, its payloads go to the trash', function(t)
    t:plan(9)
    local ticket = harness.ticket('gone', 1).upload
    local sequence = harness.commit(ticket.id, 1).sequence
    publish('gone', {1, 1})
    local packed = message.page('gone', 0, 10).rows[2][F.object_name]
    spec_api.publish_message('gone', 'not/ours.json', {})
    t:is_deeply(admin.delete('gone'), {deleted = true, purging = false}, 'deleted, and small enough to be done')
    t:is(harness.refusal(admin.get, 'gone'), 'unknown_subject', 'unknown')
    t:is(message.get(sequence), nil, 'its messages too')
    t:is(message.latest('gone'), 0, 'all of them')
    t:is(count('message', F.subject, 'gone'), 0, 'their rows')
    t:ok(box.space.trash:get(ticket.object_name), 'a payload is in the trash')
    t:ok(box.space.trash:get(packed), 'a pack too')
    t:is(box.space.trash:get('not/ours.json'), nil, 'what was never ours is not touched')
    t:is(harness.refusal(admin.delete, 'gone'), 'unknown_subject', 'a second time there is nothing to delete')
end)

test:test('made again it begins empty, while the old rows are still there', function(t)
    t:plan(12)
    for _ = 1, 600 do
        spec_api.publish_message('again', {})
    end
    local old = admin.get('again')
    local first_sequence = message.page('again', 0, 1).rows[1][F.sequence]
    publish('again', {1}, {{index = 0, key = 'k', digest = 'd'}})
    publish('again', {1}, {{index = 0, producer_id = 'p', seqno = 5}})
    consumer.put('again', 'd', {})
    consumer.ack('again', 'd', first_sequence)
    t:is(admin.delete('again').purging, true, 'there is more than one transaction\'s worth')
    t:is(message.get(first_sequence + 590), nil, 'but nothing to be seen')
    t:is(#message.page('again', 0, 10).rows, 0, 'also not when nobody made it again')
    local result = publish('again', {1}, {{index = 0, key = 'k', digest = 'other'}})
    t:is(#result.runs, 1, 'an old key is a new one')
    t:is(result.runs[1][5], 0, 'offsets begin at 0')
    t:is(#publish('again', {1}, {{index = 0, producer_id = 'p', seqno = 1}}).runs, 1, 'an old producer is unknown')
    t:is(harness.refusal(consumer.get, 'again', 'd'), 'unknown_durable', 'an old durable too')
    local new = admin.get('again')
    t:ok(new.incarnation > old.incarnation, 'another incarnation')
    t:is(new.messages, 2, 'counted from nothing')
    t:ok(message.page('again', 0, 10).rows[1][F.sequence] > first_sequence + 600, 'old messages are not in it')
    repeat
        local more = admin.clear(100).more
    until not more
    t:is(count('message', F.subject, 'again'), 2, 'only its own are left')
    t:is_deeply({message.count_after('again', 0), producer.find('again', 'p')[schema.producer.last_seqno]}, {2, 1},
        'untouched')
end)

test:test('uploads in flight end: open ones are rejected when they come, waiting ones now', function(t)
    t:plan(8)
    local free = harness.ticket('flight', 1).upload
    local open = harness.ticket('flight', 1, {producer_id = 'p', seqno = 1}).upload
    local stored = harness.ticket('flight', 1, {producer_id = 'p', seqno = 2}).upload
    harness.commit(stored.id, 1)
    local packed = harness.pack{{subject = 'flight', sizes = {3}, marks = {{index = 0, producer_id = 'p', seqno = 3}}}}
    local waiting = pack.commit(packed, 3600)[1].others[1]
    admin.delete('flight')
    local ended = upload.get(open.id).receipt
    t:is_deeply({ended.state, ended.reason}, {'rejected', 'subject_deleted'}, 'a producer\'s open one')
    t:is(upload.get(stored.id).receipt.state, 'rejected', 'one that waited')
    t:is(upload.get(waiting.upload_id).receipt.state, 'rejected', 'a frame that waited')
    t:ok(box.space.trash:get(packed.object_name), 'and its pack is in the trash')
    t:is(box.space.producer_upload:len(), 0, 'nothing is pending')
    harness.ticket('flight', 1)
    local receipt = harness.commit(free.id, 1)
    t:is_deeply({receipt.state, receipt.reason}, {'rejected', 'subject_deleted'}, 'one without a producer, later')
    t:ok(box.space.trash:get(free.object_name), 'its payload goes')
    t:is(#message.page('flight', 0, 10).rows, 0, 'and nothing of it is in the new one')
end)

test:test('a ticket is over for everyone as soon as its subject is deleted', function(t)
    t:plan(7)
    local ticket = harness.ticket('ticket', 1, {part_size = 5}).upload
    admin.delete('ticket')
    local function is_rejected(why)
        local found = upload.get(ticket.id)
        t:is_deeply({found.receipt.state, found.receipt.reason, found.upload.state},
            {'rejected', 'subject_deleted', 'rejected'}, why)
    end
    is_rejected('its receipt says so')
    t:is(harness.refusal(upload.extend, ticket.id, 60, 600), 'upload_final', 'it gets no more time')
    t:is(harness.refusal(upload.set_multipart, ticket.id, 'm'), 'upload_final', 'nor parts')
    harness.ticket('ticket', 1)
    is_rejected('also when the subject is made again')
    t:is(outcome.expire(ticket.id, -7200).receipt.state, 'rejected', 'the reconciler ends it')
    is_rejected('and it stays so')
    local aborted = harness.ticket('ticket', 1).upload
    admin.delete('ticket')
    t:is(outcome.abort(aborted.id, 900).receipt.reason, 'subject_deleted', 'whoever aborts one learns it')
end)

test:test('with the messages goes what was known of missing payloads', function(t)
    t:plan(2)
    publish('holes', {1, 1})
    local row = message.page('holes', 0, 10).rows[1]
    quarantine.add{{row[F.sequence], row[F.object_name], 'lost'}}
    t:is(box.space.missing:len(), 1, 'it was noted')
    admin.delete('holes')
    t:is(box.space.missing:len(), 0, 'and is gone')
end)

test:test('what waits behind an upload that ends before it is cleared away is not let into the new subject', function(t)
    t:plan(3)
    local open = harness.ticket('late', 1, {producer_id = 'p', seqno = 1}).upload
    local stored = harness.ticket('late', 1, {producer_id = 'p', seqno = 2}).upload
    harness.commit(stored.id, 1)
    box.begin()
    local incarnation = box.space.subject:delete('late')[schema.subject.incarnation]
    clearing.begin('late', incarnation)
    box.commit()
    harness.ticket('late', 1, {producer_id = 'p', seqno = 1})
    outcome.abort(open.id, 900)
    t:is_deeply({upload.get(stored.id).receipt.state, upload.get(stored.id).receipt.reason},
        {'rejected', 'subject_deleted'}, 'it is rejected')
    t:is(#message.page('late', 0, 10).rows, 0, 'not visible')
    admin.clear(1000)
    t:is(box.space.purge_producer:len(), 0, 'and the old producer, whose name is taken, is cleared away by its number')
end)

test:test('a payload that another subject points at stays', function(t)
    t:plan(2)
    local object = require('mts.object')
    local ticket = harness.ticket('shared', 1).upload
    harness.commit(ticket.id, 1)
    box.begin()
    object.retain(ticket.object_name)
    box.commit()
    admin.delete('shared')
    t:is(box.space.trash:get(ticket.object_name), nil, 'not in the trash')
    t:is(box.space.object:get(ticket.object_name)[2], 1, 'held by the other')
end)

test:test('partitions, routes, quotas and settings do not outlive their subject', function(t)
    t:plan(6)
    admin.put('rows', {partitions = 4, quota = {messages = 5}, codecs = {'gzip'}})
    for i = 1, 4 do
        harness.ticket('rows', 1, {codec = 'gzip', producer_id = 'p' .. i, seqno = 1})
        publish('rows', {1}, {{index = 0, producer_id = 'q' .. i, seqno = 1}})
    end
    local ticket = harness.ticket('rows', 1, {codec = 'gzip', producer_id = 'x', seqno = 1}).upload
    harness.commit(ticket.id, 1)
    local incarnation = admin.get('rows').incarnation
    t:ok(box.space.reservation:get(incarnation) and count('route', 1, incarnation) > 0, 'they were there')
    admin.delete('rows')
    t:is(count('partition', 1, 'rows'), 0, 'no partition is left')
    t:is(count('route', 1, incarnation), 0, 'no route')
    t:is(box.space.reservation:get(incarnation), nil, 'no reservation')
    t:is(harness.commit(harness.ticket('rows', 1).upload.id, 1).partition, 0, 'the new one has one partition')
    t:is_deeply(admin.get('rows').settings.codecs, {'raw', 'gzip', 'zstd'}, 'and defaults')
end)

test:test('any budget comes to the end, and several deletions of one name do not mix', function(t)
    t:plan(5)
    for _ = 1, 3 do
        for i = 1, 5 do
            publish('thrice', {1, 1}, {{index = 0, producer_id = 'p' .. i, seqno = 1},
                {index = 1, key = 'k', digest = 'd'}})
        end
        box.begin()
        clearing.begin('thrice', box.space.subject:delete('thrice')[schema.subject.incarnation])
        for _, lane in ipairs(box.space.partition:select{'thrice'}) do
            box.space.partition:delete{lane[1], lane[2]}
        end
        box.commit()
    end
    publish('thrice', {1}, {{index = 0, producer_id = 'p1', seqno = 1}})
    local calls = 0
    while admin.clear(1).more and calls < 1000 do
        calls = calls + 1
    end
    t:ok(calls < 1000, 'one row at a time is enough')
    t:is(count('message', F.subject, 'thrice'), 1, 'the living one\'s message is left')
    t:is(count('producer', 1, 'thrice'), 1, 'and its producer')
    local orphans = 0
    for _, range in box.space.producer_range:pairs() do
        orphans = orphans + (box.space.producer.index.no:get(range[1]) and 0 or 1)
    end
    t:is(orphans, 0, 'what producers had went with them, also where the name was taken meanwhile')
    t:is(commit.watermark() > 0 and box.space.purge:len() + box.space.purge_producer:len(), 0, 'no job is left')
end)

test:test('killed at any point it is resumed, and each payload is in the trash once', function(t)
    local seed = fio.tempdir()
    run(seed, 'make')
    local expected = '0 rows, 0 keys, 0 ranges, 0 producers, 0 jobs, 80 in the trash\n'
    local wrong, kills, point = {}, 0, 1
    while true do
        local folder = fio.tempdir()
        fio.copytree(seed, folder)
        local survived = run(folder, 'kill', tostring(point)):match('survived')
        if run(folder, 'look') ~= expected then
            table.insert(wrong, point)
        end
        fio.rmtree(folder)
        if survived or #wrong > 3 then
            break
        end
        kills, point = kills + 1, point + 31
    end
    t:plan(2)
    t:ok(kills > 5, 'it was killed at many points')
    t:is_deeply(wrong, {}, 'each time all of it was gone in the end')
end)

test:test('much is cleared away in small steps, which leaves others most of the time', function(t)
    t:plan(3)
    for _ = 1, 300 do
        publish('large', {1})
    end
    local fiber, rests, left = require('fiber'), {}, {box.space.message:len()}
    local sleep = fiber.sleep
    fiber.sleep = function(seconds)
        table.insert(rests, seconds)
        table.insert(left, box.space.message:len())
        sleep(seconds)
    end
    clearing.begin('large', box.space.subject:delete('large')[schema.subject.incarnation])
    repeat until not admin.clear(500).more
    fiber.sleep = sleep
    local most = 0
    for i = 2, #left do
        most = math.max(most, left[i - 1] - left[i])
    end
    t:ok(#rests >= 3, 'in several steps')
    t:ok(most <= 100, 'none of which is long')
    t:ok(math.min(unpack(rests)) > 0, 'with a rest behind each')
end)

harness.finish(test)
