-- Autopartitioning (rule 16): when a partition splits, and that order and exactly-once hold across it.
package.path = require('fio').dirname(require('fio').abspath(arg[0])) .. '/?.lua;' .. package.path
local harness = require('harness')
local admin = require('mts.subject_admin')
local commit = require('mts.commit')
local fiber = require('fiber')
local message = require('mts.message')
local pack = require('mts.pack')
local rate = require('mts.rate')
local schema = require('mts.schema')
local split = require('mts.split')
local subjects = require('mts.subject')
local tap = require('tap')
local txn = require('mts.txn')

local F = schema.message
local now = 0
rate.now = function()
    return now
end

local test = tap.test('splits')
test:plan(7)

local function publish(subject, bytes, marks)
    local sizes = {}
    for i = 1, marks and #marks or 1 do
        sizes[i] = bytes
    end
    return pack.commit(harness.pack{{subject = subject, sizes = sizes, marks = marks}}, 3600)[1]
end

-- Write `bytes` every second for some seconds; what the ticks split.
local function write_for(subject, seconds, bytes, mark)
    local done = {}
    for _ = 1, seconds do
        now = now + 1
        publish(subject, bytes, mark and {mark})
        for _, one in ipairs(split.tick().split) do
            table.insert(done, one)
        end
    end
    return done
end

local FAST = {mode = 'up', write_speed = 1000, utilization = 80, stabilization = 30, max_partitions = 3}

local function split_now(subject, partition)
    return txn.run(function()
        return split.split(subjects.find(subject), partition, 64)
    end)
end

test:test('a partition written too fast for long enough splits in two', function(t)
    t:plan(8)
    admin.put('busy', {autopartitioning = FAST})
    t:is_deeply(write_for('busy', 25, 900), {}, 'not before its time')
    local before = commit.given()
    local done = write_for('busy', 15, 900)
    t:is(#done, 1, 'then once')
    t:is_deeply({done[1].subject, done[1].partition, done[1].children}, {'busy', 0, {1, 2}}, 'it says what')
    local lanes = admin.get('busy').partitions
    t:is(lanes[1].active, false, 'the parent is inactive')
    t:is_deeply(lanes[1].children, {1, 2}, 'and knows its children')
    t:is_deeply({lanes[2].hash_from, lanes[2].hash_to, lanes[3].hash_from, lanes[3].hash_to},
        {0, 2 ^ 31, 2 ^ 31, 2 ^ 32}, 'which share its hashes')
    t:ok(lanes[1].split_at > before, 'the sequence of the split is recorded')
    local wrong = 0
    for _, row in ipairs(message.page('busy', 0, 1000).rows) do
        wrong = wrong + ((row[F.sequence] <= lanes[1].split_at) == (row[F.partition] == 0) and 0 or 1)
    end
    t:is(wrong, 0, 'what the parent has lies below it, what the children have above')
end)

test:test('a rate that falls below the threshold begins anew, and an idle partition does not split', function(t)
    t:plan(4)
    admin.put('calm', {autopartitioning = FAST})
    write_for('calm', 25, 900)
    t:is_deeply(write_for('calm', 20, 10), {}, 'not in a pause')
    t:is_deeply(write_for('calm', 25, 900), {}, 'not right after it')
    now = now + 1000
    t:is_deeply(split.tick().split, {}, 'nor later, when nobody writes')
    t:is_deeply(write_for('calm', 25, 700), {}, 'nor below the threshold')
end)

test:test('no more splits than max_partitions allows, none while paused or disabled', function(t)
    t:plan(5)
    admin.put('bound', {autopartitioning = FAST})
    write_for('bound', 400, 900, {index = 0, group = 'k', hash = 5})
    local active = admin.lanes('bound')
    t:is(#active, 3, 'three at most')
    t:is(active[1].hash_to - active[1].hash_from, 2 ^ 30, 'the busy side split again')
    admin.put('paused', {autopartitioning = FAST})
    write_for('paused', 25, 900)
    admin.put('paused', {autopartitioning = {mode = 'paused'}})
    t:is_deeply(write_for('paused', 100, 900), {}, 'paused')
    admin.put('paused', {autopartitioning = {mode = 'up'}})
    t:is(#write_for('paused', 40, 900), 1, 'up again')
    admin.put('off', {autopartitioning = {write_speed = 1, stabilization = 1}})
    t:is_deeply(write_for('off', 100, 900), {}, 'disabled is the default')
end)

test:test('a pair bound to a partition that has split goes on in a child, both of them in turn', function(t)
    t:plan(4)
    admin.put('rebind', {partitions = 2, autopartitioning = {mode = 'up'}})
    local before = {}
    for i = 1, 8 do
        before[i] = publish('rebind', 1, {{index = 0, producer_id = 'p' .. i, seqno = 1}}).runs[1][4]
    end
    split_now('rebind', 0)
    local children, moved = {[2] = 0, [3] = 0}, 0
    for i = 1, 8 do
        local lane = publish('rebind', 1, {{index = 0, producer_id = 'p' .. i, seqno = 2}}).runs[1][4]
        if before[i] == 0 then
            children[lane] = children[lane] + 1
        else
            moved = moved + (lane ~= before[i] and 1 or 0)
        end
    end
    t:is_deeply({children[2], children[3]}, {2, 2}, 'half and half')
    t:is(moved, 0, 'the others stay')
    split_now('rebind', 2)
    split_now('rebind', 3)
    local lanes = {}
    for i = 1, 8 do
        lanes[publish('rebind', 1, {{index = 0, producer_id = 'p' .. i, seqno = 3}}).runs[1][4]] = true
    end
    t:is_deeply({lanes[2], lanes[3]}, {}, 'children that split are left as well')
    t:ok(lanes[4] and lanes[5] and lanes[6] and lanes[7], 'for all of theirs')
end)

-- Producers that write, and send everything a second time, while their partitions split again and again.
test:test('order and exactly-once hold for producers that write through splits', function(t)
    t:plan(5)
    admin.put('load', {autopartitioning = {mode = 'up'}})
    local PRODUCERS, MESSAGES, running = 12, 60, 12
    for number = 1, PRODUCERS do
        fiber.create(function()
            local name = 'p' .. number
            for seqno = 1, MESSAGES, 3 do
                for _ = 1, 2 do -- the second time is a retry
                    if number % 2 == 0 then
                        local ids = {}
                        for ahead = 2, 0, -1 do
                            local asked = harness.ticket('load', seqno + ahead, {producer_id = name,
                                seqno = seqno + ahead, group = 'g'})
                            table.insert(ids, asked.upload and {asked.upload.id, seqno + ahead} or nil)
                        end
                        for _, id in ipairs(ids) do
                            harness.commit(id[1], id[2])
                        end
                    else
                        publish('load', 1, {{index = 0, producer_id = name, seqno = seqno},
                            {index = 1, producer_id = name, seqno = seqno + 1},
                            {index = 2, producer_id = name, seqno = seqno + 2}})
                    end
                    fiber.yield()
                end
            end
            running = running - 1
        end)
    end
    local splits = 0
    while running > 0 do
        local active = admin.lanes('load')
        if #active < 32 then
            split_now('load', active[splits % #active + 1].partition)
            splits = splits + 1
        end
        fiber.sleep(0.001)
    end
    t:ok(splits > 5, 'there were splits')
    local stored, out_of_order, outside = {}, 0, 0
    local lanes = {}
    for _, lane in ipairs(admin.get('load').partitions) do
        lanes[lane.partition] = lane
    end
    local total = 0
    for _, row in ipairs(message.page('load', 0, 100000).rows) do
        local lane = lanes[row[F.partition]]
        local parent = lane.parent ~= nil and lanes[lane.parent]
        outside = outside + (((lane.active or row[F.sequence] <= lane.split_at)
            and (not parent or row[F.sequence] > parent.split_at)) and 0 or 1)
        total = total + row[F.count]
    end
    for number = 1, PRODUCERS do
        local last = 0ULL
        local no = box.space.producer:get{'load', 'p' .. number}[schema.producer.no]
        for _, range in box.space.producer_range:pairs({no}, {iterator = 'EQ'}) do
            out_of_order = out_of_order + (range[4] > last and 0 or 1)
            last = range[4] + range[3] - 1
            stored[number] = (stored[number] or 0) + range[3]
        end
    end
    local incomplete = 0
    for number = 1, PRODUCERS do
        incomplete = incomplete + (stored[number] == MESSAGES and 0 or 1)
    end
    t:is(total, PRODUCERS * MESSAGES, 'each message is stored once')
    t:is(incomplete, 0, 'each producer\'s all')
    t:is(out_of_order, 0, 'in its order')
    t:is(outside, 0, 'parents below their split, children above')
end)

test:test('one hash cannot be divided', function(t)
    t:plan(2)
    admin.put('narrow', {autopartitioning = {mode = 'up'}})
    txn.run(function()
        local row = subjects.find('narrow')
        split.split(row, 0, 64)
        local lane = box.space.partition:get{'narrow', 1}
        box.space.partition:replace(schema.changed(lane, {[schema.partition.hash_to] = lane[9] + 1}))
    end)
    t:is(split_now('narrow', 1), nil, 'it stays')
    t:is(split_now('narrow', 0), nil, 'as does what has split')
end)

test:test('a split of something that was deleted meanwhile does nothing', function(t)
    t:plan(2)
    admin.put('deleted', {autopartitioning = FAST})
    for _ = 1, 40 do
        now = now + 1
        publish('deleted', 900)
    end
    admin.delete('deleted')
    admin.put('deleted', {autopartitioning = FAST})
    t:is_deeply(split.tick().split, {}, 'its rates are forgotten')
    t:is(#admin.get('deleted').partitions, 1, 'and the new one is whole')
end)

harness.finish(test)
