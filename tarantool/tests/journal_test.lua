-- Rules 29 and 30: what the journal reads, applied to an empty server, is the same again; and nothing is missed.
package.path = require('fio').dirname(require('fio').abspath(arg[0])) .. '/?.lua;' .. package.path
local harness = require('harness')
local consumer = require('mts.consumer')
local fiber = require('fiber')
local journal = require('mts.journal')
local marks = require('mts.journal_marks')
local message = require('mts.message')
local msgpack = require('msgpack')
local pack = require('mts.pack')
local recovery = require('mts.recovery')
local restore = require('mts.restore')
local schema = require('mts.schema')
local spec_api = require('mts.spec_api')
local subject_admin = require('mts.subject_admin')
local tap = require('tap')
local ttl = require('mts.ttl')
local txn = require('mts.txn')

local F = schema.message
marks.start()

-- One round as a host reads and confirms it: all steps, through the wire's encoding.
local function round(limit, checkpoint)
    local steps, position = {}, nil
    repeat
        local step = journal.read(position, limit or 1000, checkpoint)
        position = step.position
        table.insert(steps, (msgpack.decode(msgpack.encode{rows = step.rows, side = step.side,
            removed = step.removed})))
    until step.complete
    local number = journal.plan(position.number)
    return steps, function()
        return journal.ack(number, position, true)
    end, position
end

local function count(steps, what, space)
    local found = 0
    for _, step in ipairs(steps) do
        for _, item in ipairs(step[what]) do
            found = found + ((space == nil or item[1] == space) and 1 or 0)
        end
    end
    return found
end

local function everything()
    local found = {}
    for _, name in ipairs{'message', unpack(marks.SIDE)} do
        local rows = {}
        for _, row in box.space[name]:pairs() do
            table.insert(rows, row:totable())
        end
        found[name] = rows
    end
    return found
end

local function empty_all()
    for _, name in ipairs{'message', 'upload', 'producer_upload', unpack(marks.SIDE)} do
        box.space[name]:truncate()
    end
end

local function replay(rounds)
    restore.begin(true)
    for _, steps in ipairs(rounds) do
        for _, step in ipairs(steps) do
            restore.apply(step.rows, step.side, step.removed)
        end
    end
    return restore.settle()
end

local function named(subject, producer_id, seqno)
    return pack.commit(harness.pack{{subject = subject, sizes = {1},
        marks = {{index = 0, producer_id = producer_id, seqno = seqno}}}}, 3600)[1]
end

local test = tap.test('journal')
test:plan(13)

test:test('after a start everything is read, then what changed', function(t)
    t:plan(7)
    harness.publish('orders', 3)
    named('orders', 'p', 1)
    local steps, ack = round()
    t:is(count(steps, 'rows'), 2, 'every extent')
    t:ok(count(steps, 'side', 'subject') > 0, 'every subject')
    t:ok(count(steps, 'side', 'producer_range') > 0, 'every proof')
    t:ok(ack(), 'confirmed')
    t:is(#round()[1].rows, 0, 'then nothing is left')
    harness.publish('orders', 1)
    steps = round()
    t:is(count(steps, 'rows'), 1, 'then what is new')
    t:is(count(steps, 'side', 'subject'), 0, 'and not what did not change')
end)

test:test('what was read and not confirmed is read again', function(t)
    t:plan(3)
    local _, ack = round()
    ack()
    harness.publish('again', 1)
    local first = round()
    local second, confirm = round()
    t:is(count(second, 'rows'), count(first, 'rows'), 'the messages')
    t:is(count(second, 'side'), count(first, 'side'), 'and what changed with them')
    confirm()
    t:is(count(round(), 'side'), 0, 'until it is confirmed')
end)

test:test('of two writers one gives up', function(t)
    t:plan(2)
    harness.publish('two', 1)
    local one, other = journal.read(nil, 1000), journal.read(nil, 1000)
    t:ok(journal.plan(one.position.number) ~= nil, 'the first has its number')
    t:is(journal.plan(other.position.number), nil, 'the second has none')
end)

test:test('what changes while a round waits for the disk is in the next one', function(t)
    t:plan(2)
    local _, ack = round()
    ack()
    local steps, confirm
    local fibers = {}
    local function run(...) -- until it waits for the disk
        local one = fiber.create(...)
        one:set_joinable(true)
        table.insert(fibers, one)
    end
    run(named, 'waits', 'p', 1)
    run(function()
        steps, confirm = round()
    end)
    run(named, 'waits', 'p', 2)
    for _, one in ipairs(fibers) do
        one:join()
    end
    confirm()
    local known = {}
    for _, some in ipairs{steps, (round())} do
        for _, step in ipairs(some) do
            for _, item in ipairs(step.side) do
                known[item[1]] = item[2]
            end
        end
    end
    t:is(known.producer[schema.producer.last_seqno], 2, 'the last seqno')
    t:is(known.producer_range[schema.producer_range.count], 2, 'and its proof')
end)

test:test('marks that nobody reads do not fill the memory', function(t)
    t:plan(4)
    local most = marks.MOST
    local _, ack = round()
    ack()
    marks.MOST = 10
    local begun = journal.read(nil, 1000)
    for number = 1, 40 do
        named('many', 'p' .. number, 1)
    end
    marks.MOST = most
    t:is(harness.refusal(journal.read, begun.position, 1000), 'unavailable', 'a round under way begins anew')
    local steps, confirm, position = round()
    t:is(position.checkpoint, true, 'everything is walked')
    t:is(count(steps, 'rows'), 40, 'with every message')
    t:ok(count(steps, 'side', 'producer_range') >= 40, 'and every proof')
    confirm()
end)

test:test('marks given up while a checkpoint is confirmed are walked again', function(t)
    t:plan(2)
    local _, ack = round()
    ack()
    box.space.message:replace(box.space.message:get(harness.publish('given up', 1))) -- has changed
    local _, confirm = round(1000, true)
    local most = marks.MOST
    marks.MOST = 10
    local give_up = box.space.journal_change:on_replace(function()
        for number = 1, 20 do
            box.space.purge_producer:replace{900 + number}
        end
    end)
    t:ok(confirm(), 'confirmed')
    box.space.journal_change:on_replace(nil, give_up)
    marks.MOST = most
    box.space.purge_producer:truncate()
    t:ok(journal.read(nil, 1000).position.checkpoint, 'everything is walked')
end)

test:test('in small steps, under load, all of it is read', function(t)
    t:plan(3)
    local _, ack = round()
    ack()
    local running, rounds = 8, {}
    for number = 1, 8 do
        fiber.create(function()
            for seqno = 1, 50 do
                named('load', 'p' .. number, seqno)
                fiber.yield()
            end
            running = running - 1
        end)
    end
    while running > 0 do
        local steps, confirm = round(7)
        confirm()
        table.insert(rounds, steps)
        fiber.yield()
    end
    table.insert(rounds, (round(7)))
    local seen = {}
    for _, steps in ipairs(rounds) do
        for _, step in ipairs(steps) do
            for _, row in ipairs(step.rows) do
                seen[tostring(row[F.sequence])] = true
            end
        end
    end
    local lost, proofs = 0, {}
    for _, row in box.space.message.index.subject_sequence:pairs{'load'} do
        lost = lost + (seen[tostring(row[F.sequence])] and 0 or 1)
    end
    t:is(lost, 0, 'every message')
    local old = 0
    for _, steps in ipairs(rounds) do
        local newest = 0ULL
        for _, step in ipairs(steps) do
            for _, row in ipairs(step.rows) do
                newest = row[F.sequence] > newest and 0ULL + row[F.sequence] or newest
            end
            for _, item in ipairs(step.side) do
                if item[1] == 'producer_range' then
                    proofs[tostring(item[2][1])] = item[2]
                end
            end
        end
        for _, range in pairs(proofs) do -- no proof of a message that the journal does not hold
            old = old + (newest > 0 and range[4] + range[3] - 1 > newest and 1 or 0)
        end
    end
    t:is(old, 0, 'no proof is ahead of its message')
    local behind = 0
    for no, range in pairs(proofs) do
        local row = box.space.producer_range:select({tonumber(no)}, {iterator = 'REQ', limit = 1})[1]
        behind = behind + (row[2] == range[2] and row[3] == range[3] and 0 or 1)
    end
    t:is(behind, 0, 'and in the end none is behind')
end)

test:test('an empty server becomes the same again', function(t)
    t:plan(9)
    subject_admin.put('lanes', {partitions = 3})
    for number = 1, 5 do
        pack.commit(harness.pack{{subject = 'lanes', sizes = {1, 2}, own = {{1, {a = 'b'}, 'x/y'}},
            marks = {{index = 0, group = 'g' .. number, hash = number * 800000000}}}}, 3600)
    end
    consumer.put('orders', 'ordered', {mode = 'ordered'})
    consumer.put('orders', 'shared', {mode = 'shared'})
    require('mts.delivery').lease('orders', 'shared', 2, 60)
    consumer.ack('orders', 'ordered', 2)
    local ticket = harness.ticket('orders', 4).upload
    harness.commit(ticket.id, 4)
    spec_api.publish_message('orders', {})
    harness.publish('gone', 2)
    subject_admin.delete('gone', 900)
    local last = box.space.message.index.primary:max()[F.sequence]
    local before = everything()
    box.space.state:delete('journal') -- from the first message on
    local steps = round(5, true)
    empty_all()
    local settled = replay{steps}
    local after = everything()
    for _, name in ipairs{'message', 'subject', 'partition', 'producer', 'producer_range', 'consumers', 'delivery',
            'object'} do
        t:is_deeply(after[name], before[name], name)
    end
    restore.finish(last + 1000, last + 2000, 77, 0)
    t:ok(settled.messages == #before.message and harness.publish('orders', 1) == last + 1001, 'numbers go on above')
    recovery.clear()
end)

test:test('what was removed stays away', function(t)
    t:plan(6)
    local first = harness.publish('ttl', 1)
    for _ = 1, 4 do
        harness.publish('ttl', 1)
    end
    local one, ack = round()
    ack()
    local gone = message.locate(first + 3)[F.object_name]
    txn.run(function()
        message.remove(message.locate(first), 'expired')
        message.remove(message.locate(first + 3), 'replayed')
    end)
    t:is(box.space.journal_change:len(), 1, 'the one from the middle is known also after a start')
    local two = round()
    local kept = {}
    for _, step in ipairs(two) do
        step.removed = {} -- as when the server died before they were written
        table.insert(kept, step)
    end
    local again = round()
    empty_all()
    local before = replay{one, kept}
    t:is(message.locate(first), nil, 'from the head: the partition says where it begins')
    t:is(before.cut, 1, 'and only there')
    empty_all()
    box.space.trash:truncate()
    replay{one, again}
    t:is(message.locate(first + 3), nil, 'from the middle: it was told')
    t:is(box.space.partition:get{'ttl', 0}[schema.partition.messages], 3, 'and is not counted')
    t:is(box.space.trash:get(gone)[3], 'removed_before_restore', 'its payload goes too, later')
    restore.finish(first + 5000, first + 6000, 80, 0)
    recovery.clear()
end)

test:test('a message that changed behind the cursor is written again', function(t)
    t:plan(9)
    local first = harness.publish('cut', 3)
    local one, ack = round(nil, true)
    ack()
    txn.run(function()
        message.cut_out(message.locate(first), 1)
    end)
    t:is(box.space.journal_change:len(), 2, 'known also after a start')
    local two
    two, ack = round()
    t:is(count(two, 'rows'), 2, 'what is left of the extent')
    t:is(count(two, 'removed'), 0, 'its key was only written anew')
    t:ok(ack(), 'confirmed')
    t:is(box.space.journal_change:len(), 0, 'and forgotten')
    t:is(count(round(), 'rows'), 0, 'it is written once')
    empty_all()
    replay{one, two}
    t:is(message.locate(first + 1), nil, 'the cut message is not there')
    t:ok(message.locate(first) and message.locate(first + 2), 'its neighbours are')
    t:is(box.space.journal_change:len(), 0, 'what is replayed is not new to the bucket')
    restore.finish(first + 7000, first + 8000, 82, 0)
    recovery.clear()
end)

test:test('how long messages stay belongs to it, cursors and leases do not', function(t)
    t:plan(3)
    local _, ack = round()
    ack()
    ttl.configure{default_ttl = 77}
    box.space.state:replace{'packs_cursor', 'x'}
    local steps = round()
    t:is(count(steps, 'side', 'state'), 1)
    box.space.state:delete('ttl')
    replay{steps}
    t:is(ttl.get().default_ttl, 77, 'it comes back')
    t:ok(count(round(nil, true), 'side', 'state') > 0, 'a checkpoint holds it too')
    restore.finish(box.space.message.index.primary:max()[F.sequence] + 9000, 1e9, 84, 0)
    recovery.clear()
end)

for _, start in ipairs(harness.HIGH) do
    test:test('it holds at ' .. tostring(start), function(t)
        t:plan(4)
        empty_all()
        box.space.state:delete('journal')
        harness.go_on_after(start)
        named('high', 'p', start)
        harness.publish('high', 2)
        local steps, _, position = round(1, true)
        t:ok(position.from == start + 3, 'the cursor is exact')
        local before = everything()
        empty_all()
        replay{steps, steps}
        t:is_deeply(everything().message, before.message, 'messages, replayed twice')
        t:is_deeply(everything().producer_range, before.producer_range, 'proofs')
        restore.finish(start + 100, start + 200, 90, 0)
        t:ok(harness.publish('high', 1) == start + 101, 'numbers go on')
        recovery.clear()
    end)
end

harness.finish(test)
