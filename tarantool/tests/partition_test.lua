-- Partitions (rule 16): where messages go, routes of named pairs, growth by hand, what is kept in memory about them.
package.path = require('fio').dirname(require('fio').abspath(arg[0])) .. '/?.lua;' .. package.path
local harness = require('harness')
local admin = require('mts.subject_admin')
local clock = require('mts.clock')
local clocks = require('mts.compare_clocks')
local fiber = require('fiber')
local idempotency = require('mts.idempotency')
local message = require('mts.message')
local pack = require('mts.pack')
local partition = require('mts.partition')
local producer = require('mts.producer')
local schema = require('mts.schema')
local spec_api = require('mts.spec_api')
local split = require('mts.split')
local subjects = require('mts.subject')
local tap = require('tap')
local txn = require('mts.txn')

local F = schema.message
local DAY = 24 * 3600
local test = tap.test('partitions')
test:plan(12)

local function lane(subject, key)
    return txn.run(function()
        return partition.lane_for(subjects.find(subject), key)
    end)
end

local seqnos = {}

-- The partition that a message of a pair is stored in.
local function publish(subject, producer_id, group)
    seqnos[subject .. producer_id] = (seqnos[subject .. producer_id] or 0) + 1
    local ticket = harness.ticket(subject, 1, {producer_id = producer_id, group = group,
        seqno = seqnos[subject .. producer_id]}).upload
    return harness.commit(ticket.id, 1).partition
end

local function ranges(subject)
    local found = {}
    for _, one in ipairs(admin.get(subject).partitions) do
        table.insert(found, {one.hash_from, one.hash_to})
    end
    return found
end

test:test('a subject has one partition unless more are asked for', function(t)
    t:plan(3)
    spec_api.publish_message('plain', {})
    t:is(lane('plain', {}), 0, 'everything goes there')
    t:is(lane('plain', {producer_id = 'p', group = 'g'}), 0, 'pairs too')
    t:is(box.space.route:len(), 0, 'and nothing is bound')
end)

test:test('keys without a producer go by their hash', function(t)
    t:plan(5)
    admin.put('hash', {partitions = 4})
    t:is(lane('hash', {group = 'k', hash = 0}), 0, 'the first hash')
    t:is(lane('hash', {group = 'k', hash = 2 ^ 30 - 1}), 0, 'the last of the first partition')
    t:is(lane('hash', {group = 'k', hash = 2 ^ 30}), 1, 'the first of the second')
    t:is(lane('hash', {group = 'k', hash = 2 ^ 32 - 1}), 3, 'the last hash')
    t:is(lane('hash', {group = 'k', hash = 0ULL + 2 ^ 31}), 2, 'also as a large number')
end)

test:test('messages with neither take turns', function(t)
    t:plan(2)
    admin.put('turns', {partitions = 3})
    local seen = {}
    for _ = 1, 6 do
        table.insert(seen, harness.commit(harness.ticket('turns', 1).upload.id, 1).partition)
    end
    t:is_deeply(seen, {0, 1, 2, 0, 1, 2}, 'uploads one by one')
    local result = pack.commit(harness.pack{{subject = 'turns', sizes = {1, 1, 1}}}, 3600)[1]
    t:is(#result.runs, 1, 'frames of a pack together')
end)

test:test('a pair is bound at its first use, in turn, and stays', function(t)
    t:plan(4)
    admin.put('pairs', {partitions = 2})
    local first, second = publish('pairs', 'p', 'a'), publish('pairs', 'p', 'b')
    t:isnt(first, second, 'two groups of one producer are two pairs')
    t:is(publish('pairs', 'q', 'a'), first, 'the third is where the first is: round robin')
    spec_api.publish_message('pairs', {}) -- takes a turn of its own
    t:is(publish('pairs', 'p', 'a'), first, 'and each stays')
    t:is(publish('pairs', 'p', 'b'), second, 'where it was')
end)

test:test('frames of a pack go where their marks say, in one extent each as long as they stay together', function(t)
    t:plan(5)
    admin.put('frames', {partitions = 2})
    local result = pack.commit(harness.pack{{subject = 'frames', sizes = {1, 2, 3, 4, 5}, marks = {
        {index = 0, group = 'low', hash = 1}, {index = 1, group = 'low', hash = 1},
        {index = 2, group = 'high', hash = 2 ^ 32 - 1, key = 'k', digest = 'd'},
        {index = 3, group = 'low', hash = 1, key = 'k', digest = 'd'}, {index = 4, group = 'low', hash = 2}}}},
        3600)[1]
    local lanes = {}
    for _, run in ipairs(result.runs) do
        table.insert(lanes, {run[1], run[2], run[4], tonumber(run[5])})
    end
    t:is_deeply(lanes, {{0, 2, 0, 0}, {2, 1, 1, 0}, {4, 1, 0, 2}}, 'three extents with offsets of their partitions')
    t:is(result.others[1].duplicate, true, 'a key given again is found across the change of partition')
    local rows = message.page('frames', 0, 10).rows
    t:is(rows[2][F.byte_from], 9 + 1 + 2 + 16, 'each at its place in the object')
    t:is(#message.page('frames', 0, 10, 1).rows, 1, 'readers of a partition see theirs')
    t:is(box.space.object:get(rows[1][F.object_name])[2], 3, 'three rows hold the pack')
end)

test:test('partitions added by hand share the hashes evenly; pairs stay', function(t)
    t:plan(8)
    admin.put('grow', {partitions = 2})
    local before = {publish('grow', 'p', 'a'), publish('grow', 'p', 'b')}
    admin.put('grow', {partitions = 4})
    t:is_deeply({publish('grow', 'p', 'a'), publish('grow', 'p', 'b')}, before, 'pairs are where they were')
    t:is_deeply(ranges('grow'), {{0, 2 ^ 30}, {2 ^ 30, 2 ^ 31}, {2 ^ 31, 3 * 2 ^ 30}, {3 * 2 ^ 30, 2 ^ 32}}, 'even')
    t:is(lane('grow', {hash = 2 ^ 32 - 1}), 3, 'keys go to the new ones')
    t:is(harness.refusal(admin.put, 'grow', {partitions = 3}), 'bad_request', 'fewer is refused')
    t:is(admin.put('grow', {partitions = 4}).created, false, 'as many is fine')
    admin.put('grow', {partitions = 256})
    local all = ranges('grow')
    t:is(#all, 256, 'up to 256')
    local gaps = 0
    for i = 2, #all do
        gaps = gaps + (all[i][1] == all[i - 1][2] and 0 or 1)
    end
    t:is(gaps, 0, 'without gaps')
    admin.put('auto', {partitions = 2, autopartitioning = {mode = 'paused'}})
    t:is(harness.refusal(admin.put, 'auto', {partitions = 3}), 'bad_request', 'never where partitions may have split')
end)

test:test('pairs that wrote while there was one partition stay in it', function(t)
    t:plan(3)
    for i = 1, 4 do
        publish('first', 'old' .. i, 'g')
    end
    admin.put('first', {partitions = 4})
    local lanes, fresh = {}, {}
    for i = 1, 4 do
        table.insert(lanes, publish('first', 'old' .. i, 'g'))
        fresh[publish('first', 'new' .. i, 'g')] = true
    end
    t:is_deeply(lanes, {0, 0, 0, 0}, 'the old ones in partition 0')
    t:ok(fresh[1] and fresh[2] and fresh[3], 'new ones everywhere')
    publish('other', 'p', 'g')
    admin.put('other', {autopartitioning = {mode = 'up'}})
    txn.run(function()
        split.split(subjects.find('other'), 0, 64)
    end)
    t:ok(publish('other', 'p', 'g') > 0, 'unless that one has split: then in a child')
end)

test:test('a rolled back change leaves nothing wrong in memory', function(t)
    t:plan(6)
    admin.put('rolled', {partitions = 2, codecs = {'raw'}})
    local function in_doubt(work)
        harness.refusal(txn.run, function()
            work(subjects.find('rolled'))
            error('the disk is full')
        end)
    end
    in_doubt(function(row)
        row = partition.grow(row, 4)
        t:is(partition.lane_for(row, {hash = 2 ^ 32 - 1}), 3, 'inside, the change is seen')
    end)
    t:is(lane('rolled', {hash = 2 ^ 32 - 1}), 1, 'after the rollback it is not')
    in_doubt(function(row)
        split.split(row, 0, 64)
        t:isnt(partition.lane_for(subjects.find('rolled'), {hash = 0}), 0, 'the same for a split')
    end)
    t:is(lane('rolled', {hash = 0}), 0, 'taken back')
    admin.put('rolled', {partitions = 3})
    t:is(lane('rolled', {hash = 2 ^ 32 - 1}), 2, 'another change after it is seen')
    t:is(admin.get('rolled').settings.codecs[1], 'raw', 'settings too')
end)

test:test('routes and producers idle for 14 days are forgotten, those in use and with open uploads are not', function(t)
    t:plan(7)
    local now, seconds = clock.seconds(), clock.seconds
    clock.seconds = function()
        return now
    end
    admin.put('idle', {partitions = 2})
    for _, name in ipairs{'gone', 'used', 'open'} do
        publish('idle', name, '')
    end
    harness.ticket('idle', 1, {producer_id = 'open', seqno = 99})
    now = now + 14 * DAY
    publish('idle', 'used', '')
    t:ok(admin.trim() >= 0 and producer.find('idle', 'gone'), 'not a moment before')
    now = now + 3601
    t:ok(admin.trim() > 0, 'something goes')
    local incarnation = subjects.find('idle')[schema.subject.incarnation]
    t:is(box.space.route:get{incarnation, 'gone', ''}, nil, 'the route')
    t:is(producer.find('idle', 'gone'), nil, 'the producer')
    t:ok(box.space.route:get{incarnation, 'used', ''}, 'a route in use stays')
    t:ok(producer.find('idle', 'used'), 'its producer too')
    t:ok(producer.find('idle', 'open'), 'and one with an open upload')
    clock.seconds = seconds
end)

test:test('a clock that jumps ahead makes no producer, route or idempotency key idle', function(t)
    t:plan(6)
    admin.put('jump', {partitions = 2})
    publish('jump', 'p', '')
    local function keyed()
        local marks = {{index = 0, key = 'k', digest = 'd'}}
        return pack.commit(harness.pack{{subject = 'jump', sizes = {1}, marks = marks}}, 3600)[1]
    end
    local first, incarnation = keyed().runs[1][3], subjects.find('jump')[schema.subject.incarnation]
    local time = fiber.time
    fiber.time = function()
        return time() + 30 * DAY
    end
    t:is(admin.trim() + idempotency.trim(), 0, 'nothing is forgotten')
    t:ok(producer.find('jump', 'p'), 'not the producer')
    t:ok(box.space.route:get{incarnation, 'p', ''}, 'nor its route')
    t:is(keyed().others[1].sequence, first, 'and what was stored under a key is not stored again')
    clocks.compare(clock.milliseconds())
    t:ok(admin.trim() > 0, 'by a clock that was compared they go')
    fiber.time = time
    clocks.compare(clock.milliseconds())
    t:is(producer.find('jump', 'p'), nil, 'for good')
end)

test:test('an inactive partition disappears with its last message', function(t)
    t:plan(5)
    admin.put('vanish', {autopartitioning = {mode = 'up'}})
    harness.commit(harness.ticket('vanish', 1).upload.id, 1)
    txn.run(function()
        split.split(subjects.find('vanish'), 0, 64)
    end)
    t:is(#admin.get('vanish').partitions, 3, 'parent and children')
    t:is(txn.run(function() return partition.vanish_if_empty('vanish', 0) end), false, 'not while it holds one')
    t:is(txn.run(function() return partition.vanish_if_empty('vanish', 1) end), false, 'never an active one')
    txn.run(function()
        message.remove(message.page('vanish', 0, 1).rows[1], 'expired')
    end)
    t:is(#admin.get('vanish').partitions, 2, 'then it is gone')
    t:ok(publish('vanish', 'p', 'g') > 0, 'and the children go on')
end)

test:test('what a host needs to know of the partitions', function(t)
    t:plan(2)
    admin.put('lanes', {partitions = 2})
    t:is_deeply(admin.lanes('lanes'), {{partition = 0, hash_from = 0, hash_to = 2 ^ 31},
        {partition = 1, hash_from = 2 ^ 31, hash_to = 2 ^ 32}}, 'the active ones')
    t:is(admin.lanes('nobody'), nil, 'nothing for a subject nobody made')
end)

harness.finish(test)
