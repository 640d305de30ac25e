-- A database of any older schema is migrated and goes on: its rows are read, acked, committed, deleted and expired as
-- those of today are. Each is written by one process and taken over by another, as when a server is updated.
local fio = require('fio')
local script = fio.abspath(arg[0]) -- before the database changes the folder
local folder = fio.dirname(script)
package.path = fio.dirname(folder) .. '/?.lua;' .. folder .. '/?.lua;' .. package.path
local json = require('json')
local old_rows = require('old_rows')
local tap = require('tap')

local GRACE, DAY = 900, 24 * 3600
local PARTS, test = {}, nil

-- What an older server leaves behind.
function PARTS.write(version)
    box.cfg{work_dir = os.getenv('MTS_TEST_DIR'), log_level = 1, feedback_enabled = false,
        memtx_memory = 32 * 1024 * 1024}
    require('mts.migrations').run(version)
    old_rows.write(version)
end

-- The first and last sequences of what a page holds, as text.
local function spans(rows)
    local found = {}
    for _, row in ipairs(rows) do
        table.insert(found, ('%d-%d'):format(tonumber(row[1] - row[8]) + 1, tonumber(row[1])))
    end
    return table.concat(found, ' ')
end

local function messages_are_read(t)
    t:plan(6)
    local message, spec_api = require('mts.message'), require('mts.spec_api')
    t:is(spans(message.page('orders', 1, 100).rows), '1-1 2-4 5-5 6-6 7-7', 'in order')
    t:is_deeply(message.get(1)[2], {source = 'old'}, 'with their headers')
    t:is_deeply(message.get(3)[12], {{0, {place = 'second'}, box.NULL}}, 'of a pack one by one')
    t:is(tonumber(message.get(3)[7]), 2, 'with their offsets')
    t:is(tonumber(spec_api.get_subject_message_count('orders')), 7, 'and counted')
    t:is(#spec_api.get_messages_by_subject('orders', 3, 2), 2, 'as the specification reads them too')
end

local function uploads_go_on(t)
    t:plan(12)
    local harness = require('harness')
    local outcome, upload = require('mts.upload_outcome'), require('mts.upload')
    local ids = old_rows.UPLOADS
    local function state(id)
        return upload.get(id).receipt.state
    end
    local again = harness.commit(ids.committed, 5)
    t:is_deeply({tonumber(again.sequence), again.duplicate}, {1, true}, 'what was committed stays so')
    t:is(harness.commit(ids.open, 5).state, 'committed', 'what was open is committed')
    t:is(#require('mts.upload_due').due(10).uploads, 1, 'one is due')
    t:is(outcome.expire(ids.late, GRACE).receipt.state, 'expired', 'and expires')
    t:is(upload.get(ids.behind).receipt.waits_for, ids.first, 'what waits, waits')
    local spec = {producer_id = 'p', seqno = 3}
    t:is(harness.ticket('orders', 5, spec).upload.id, ids.first, 'a ticket asked for again is the same')
    local first = harness.commit(ids.first, 5)
    t:is(state(ids.behind), 'committed', 'until what is before it comes')
    t:is(upload.get(ids.behind).receipt.sequence, first.sequence + 1, 'and follows')
    spec.seqno = 2
    t:is(tonumber(harness.ticket('orders', 5, spec).receipt.sequence), 7, 'the proof of a seqno is kept')
    local epoch = outcome.start_producer('orders', 'p', GRACE, {of = 'session'}).epoch
    t:ok(epoch > 0, 'a session begins')
    spec = {producer_id = 'p', seqno = 9, epoch = epoch}
    t:is(outcome.abort(harness.ticket('orders', 5, spec).upload.id, GRACE).receipt.state, 'aborted', 'and is used')
    local same = require('mts.pack').commit(harness.pack{{subject = 'orders', sizes = {1},
        marks = {{index = 0, key = 'key', digest = 'digest'}}}}, 3600)[1].others[1]
    t:is(same.duplicate, true, 'so is an Idempotency-Key')
end

local function a_durable_goes_on(t)
    t:plan(9)
    local consumer, session = require('mts.consumer'), require('mts.session')
    local read = require('mts.consumer_read').read
    local described = consumer.get('orders', 'reader')
    t:is_deeply({described.mode, tonumber(described.last_sequence)}, {'ordered', 2}, 'it stands where it stood')
    t:is(described.lag, require('mts.message').count_after('orders', 2), 'with its lag')
    t:is(spans(read('orders', 'reader', {limit = 3}).rows), '3-4 5-5', 'it reads on')
    t:is(tonumber(consumer.ack('orders', 'reader', 4).last_sequence), 4, 'and acks')
    local joined = session.join('orders', 'reader', 'a', 30)
    session.ack('orders', 'reader', 'a', joined.epoch, {{0, joined.partitions[1].fence, 5}})
    session.leave('orders', 'reader', 'a', joined.epoch)
    t:is(tonumber(consumer.get('orders', 'reader').last_sequence), 5, 'in a session too')
    t:is(tonumber(consumer.seek('orders', 'reader', 2).last_sequence), 1, 'it is moved')
    t:is(consumer.put('orders', 'reader', {important = true}).consumer.important, true, 'and gets settings')
    t:is(tonumber(consumer.held_sequence('orders')), 1, 'that hold')
    t:is(#consumer.list('orders', nil, 10).consumers, 1, 'it is listed')
end

local function a_shared_durable_goes_on(t)
    t:plan(4)
    local delivery = require('mts.delivery')
    local leased = delivery.lease('jobs', 'workers', 10, 30)
    t:is(spans(leased.rows), '8-10', 'what was leased is handed out again')
    t:is(tonumber(leased.tries[1][3]), 2, 'for the second time')
    t:is(delivery.ack('jobs', 'workers', leased.lease_id, {8, 9, 10}).acked, 3, 'and acked')
    t:is(tonumber(require('mts.consumer').get('jobs', 'workers').last_sequence), 10, 'the position follows')
end

local function a_transaction_is_committed(t)
    t:plan(2)
    t:is(require('mts.transaction_end').commit(old_rows.TRANSACTION, GRACE).state, 'committed', 'it is committed')
    t:is(require('mts.upload').get(old_rows.UPLOADS.staged).receipt.state, 'committed', 'with its upload')
end

local function a_subject_is_changed(t)
    t:plan(4)
    local harness, admin = require('harness'), require('mts.subject_admin')
    local changed = admin.put('orders', {partitions = 3, ttl = 5 * DAY, quota = {messages = 1000}}).subject
    t:is(#changed.partitions, 3, 'it gets partitions')
    t:is(changed.expires_after, nil, 'and settings')
    local function publish(producer_id, seqno)
        return tonumber(require('mts.pack').commit(harness.pack{{subject = 'orders', sizes = {1}, marks = {{index = 0,
            producer_id = producer_id, seqno = seqno, group = 'g'}}}}, 3600)[1].runs[1][4])
    end
    t:is(publish('p', 20), 0, 'who wrote before stays in the first one')
    t:ok(publish('q', 1) < 3, 'others are bound to one')
end

local function nothing_is_out_of_step(t)
    t:plan(4)
    local journal, wrong = require('mts.journal'), {}
    local position, missing = nil, {}
    for _, row in box.space.message:pairs() do
        missing[tonumber(row[1])] = true
    end
    repeat
        local step = journal.read(position, 1000)
        for _, row in ipairs(step.rows) do
            missing[tonumber(row[1])] = nil
        end
        position = step.position
    until step.complete
    t:is_deeply(missing, {}, 'the journal reads every row')
    t:ok(journal.ack(journal.plan(position.number), position, true), 'and is confirmed')
    for _, lane in ipairs(require('mts.audit').lanes('', 0).lanes) do
        if lane.messages ~= tonumber(lane.counters.messages) or lane.bytes ~= tonumber(lane.counters.bytes) then
            table.insert(wrong, lane)
        end
    end
    t:is(json.encode(wrong), '[]', 'counters say what is there')
    local pack = require('mts.audit').names{old_rows.PACK}[old_rows.PACK]
    t:is(tonumber(pack.refs), pack.rows + pack.stored, 'so does the count of what points at a pack')
end

local function a_message_is_deleted_for_good(t)
    t:plan(2)
    local deletion, message = require('mts.deletion'), require('mts.message')
    local done = deletion.message(3, 'api', 'asked for')
    t:is_deeply(deletion.work(done.id, 10).work, {{old_rows.PACK, 'rewrite'}}, 'out of its pack')
    t:is(spans(message.page('orders', 2, 2).rows), '2-2 4-4', 'its neighbours stay')
end

local function old_messages_expire(t)
    t:plan(6)
    local message, object = require('mts.message'), require('mts.object')
    local retention, consumer = require('mts.retention'), require('mts.consumer')
    require('mts.ttl').configure{enabled = true, default_ttl = DAY}
    retention.run()
    t:is(message.get(1), nil, 'what is read')
    t:ok(message.get(2), 'and not what a durable has to read')
    consumer.ack('orders', 'reader', 7)
    retention.run()
    t:is(message.get(7), nil, 'until it has')
    t:ok(object.in_trash('m/orders/1/0190aaaa-0000-7000-8000-000000000001'), 'their payloads go')
    local due = {}
    for _, entry in ipairs(object.trash_due(100)) do
        due[entry[1]] = true
    end
    t:is_deeply({due[old_rows.GONE], due[old_rows.KEPT]}, {true}, 'what was in the trash is due when it was')
    object.trash_postpone({old_rows.GONE}, 60)
    object.trash_done{old_rows.GONE}
    t:is(object.in_trash(old_rows.GONE), false, 'and goes')
end

local function nothing_is_left_of_a_deleted_subject(t)
    t:plan(2)
    local admin = require('mts.subject_admin')
    admin.delete('orders', GRACE)
    while admin.clear(1000, GRACE).more do
        require('fiber').yield()
    end
    local left = {}
    for _, name in ipairs{'message', 'partition', 'consumers', 'consumer_partition', 'session', 'producer',
        'producer_range', 'producer_upload', 'idempotency', 'route', 'reservation', 'purge'} do
        for _, row in box.space[name]:pairs() do
            if row[4] ~= 'jobs' and row[2] ~= 'jobs' and row[1] ~= 'jobs' then
                table.insert(left, {name, row})
            end
        end
    end
    t:is(json.encode(left), '[]', 'in no space')
    t:is(require('harness').publish('orders', 1) > 10, true, 'and it begins anew, behind all that was given')
end

function PARTS.go_on(version)
    local harness, migrations = require('harness'), require('mts.migrations')
    require('mts.journal_marks').start()
    test = tap.test('version ' .. version)
    local tests = {
        {1, 'messages are read', messages_are_read},
        {1, 'uploads go on', uploads_go_on},
        {1, 'a durable goes on', a_durable_goes_on},
        {2, 'a shared durable goes on', a_shared_durable_goes_on},
        {2, 'a transaction is committed', a_transaction_is_committed},
        {1, 'a subject is changed', a_subject_is_changed},
        {1, 'nothing is out of step', nothing_is_out_of_step},
        {1, 'a message is deleted for good', a_message_is_deleted_for_good},
        {1, 'old messages expire', old_messages_expire},
        {1, 'nothing is left of a deleted subject', nothing_is_left_of_a_deleted_subject},
    }
    assert(migrations.version() == migrations.STEPS[#migrations.STEPS].version, 'it is migrated')
    test:plan(version > 1 and #tests or #tests - 2)
    for _, one in ipairs(tests) do
        if version >= one[1] then
            test:test(one[2], one[3])
        end
    end
    harness.finish(test)
end

if arg[1] then
    PARTS[arg[1]](tonumber(arg[2]))
    os.exit(0)
end

-- What a process said, unless all went well.
local function complaints(work_dir, part, version)
    local process = io.popen(('MTS_TEST_DIR=%s %s %s %s %d 2>&1; echo "code $?"')
        :format(work_dir, arg[-1], script, part, version), 'r')
    local output = process:read('*a')
    process:close()
    return output:match('code 0\n$') and '' or output
end

local steps = require('mts.migrations').STEPS
test = tap.test('upgrades')
test:plan(#steps - 1)

for _, step in ipairs{unpack(steps, 1, #steps - 1)} do
    test:test(('what version %d wrote goes on'):format(step.version), function(t)
        t:plan(2)
        local work_dir = fio.tempdir()
        t:is(complaints(work_dir, 'write', step.version), '', 'it is written')
        t:is(complaints(work_dir, 'go_on', step.version), '', 'and taken over')
        fio.rmtree(work_dir)
    end)
end

os.exit(test:check() and 0 or 1)
