-- Legal deletion: one message or all of a subject, with everything that shares their payloads (rules 23 to 25).
package.path = require('fio').dirname(require('fio').abspath(arg[0])) .. '/?.lua;' .. package.path
local harness = require('harness')
local clock = require('mts.clock')
local consumer = require('mts.consumer')
local deletion = require('mts.deletion')
local delivery = require('mts.delivery')
local erasure = require('mts.erasure')
local message = require('mts.message')
local object = require('mts.object')
local packs = require('mts.pack')
local quarantine = require('mts.quarantine')
local schema = require('mts.schema')
local tap = require('tap')

local D, F, P = schema.deletion, schema.message, schema.partition
local refusal = harness.refusal
local advance = harness.hold_clock()
local test = tap.test('deletion')
test:plan(18)

local function sequences(subject)
    local found = {}
    for _, row in ipairs(message.page(subject, 0, 1000).rows) do
        for sequence = tonumber(row[F.sequence] - row[F.count]) + 1, tonumber(row[F.sequence]) do
            table.insert(found, sequence)
        end
    end
    return found
end

local function counters(subject)
    local lane = box.space.partition:get{subject, 0}
    return {tonumber(lane[P.messages]), tonumber(lane[P.bytes])}
end

local function refs(name)
    local row = box.space.object:get(name)
    return row and tonumber(row[schema.object.refs])
end

local function target()
    return '_mts/packs/' .. clock.new_id()
end

-- Moves that lay everything that is kept one behind the other.
local function moves_of(plan)
    local moves, at = {}, 100
    for _, item in ipairs(plan.kept) do
        table.insert(moves, {item[1], item[2], item[3], item[4], at})
        at = at + item[4]
    end
    return moves
end

local function dead_letter(subject)
    consumer.put(subject, 'q', {mode = 'shared', max_deliver = 1})
    local leased = delivery.lease(subject, 'q', 1, 10)
    delivery.nack(subject, 'q', leased.lease_id, {message.latest(subject) and leased.rows[1][F.sequence]}, 0)
end

test:test('a plain message goes with its payload', function(t)
    t:plan(7)
    local ticket = harness.ticket('plain', 5)
    local sequence = harness.commit(ticket.upload.id, 5).sequence
    local done = deletion.message(sequence, 'api', 'asked for')
    t:is_deeply({done.kind, done.subject, tonumber(done.messages), tonumber(done.bytes), done.who, done.reason},
        {'message', 'plain', 1, 5, 'api', 'asked for'})
    t:is(message.get(sequence), nil, 'readers do not see it')
    t:is_deeply(counters('plain'), {0, 0})
    t:is_deeply(object.trash_due(10)[1], {ticket.upload.object_name, false, false}, 'its payload is due now')
    t:is_deeply(deletion.work(done.id, 10).work, {{ticket.upload.object_name, 'trash'}})
    object.trash_done{ticket.upload.object_name}
    t:is(deletion.work(done.id, 10).deletion.done, true, 'done when the store has confirmed it')
    t:is(deletion.message(sequence, 'api', 'again').id, done.id, 'asked again, the same is answered')
end)

test:test('a message that is not there is refused', function(t)
    t:plan(2)
    t:is(refusal(deletion.message, 1000000, 'api', ''), 'not_found')
    t:is(box.space.deletion:len(), 1)
end)

for name, index in pairs{first = 0, middle = 1, last = 2} do
    test:test('the ' .. name .. ' message of a pack is cut out and its neighbours stay', function(t)
        t:plan(6)
        local subject = 'pack-' .. name
        local first = tonumber(harness.publish(subject, 3, {own = {{0, {a = '0'}}, {2, {a = '2'}}}}))
        local pack = message.locate(first)[F.object_name]
        local before = {message.get(first), message.get(first + 1), message.get(first + 2)}
        local done = deletion.message(first + index, 'api', '')
        local left = {}
        for at = 0, 2 do
            if at ~= index then
                table.insert(left, first + at)
            end
        end
        t:is_deeply(sequences(subject), left)
        local same = true
        for _, sequence in ipairs(left) do
            local now, old = message.get(sequence), before[sequence - first + 1]
            same = same and now[F.offset] == old[F.offset] and now[F.byte_from] == old[F.byte_from]
                and (now[F.own] == nil) == (old[F.own] == nil)
        end
        t:ok(same, 'with their places, bytes and headers')
        t:is_deeply(counters(subject), {2, 20})
        t:is(refs(pack), index == 1 and 2 or 1, 'the pack is held by what is left')
        t:is_deeply(deletion.work(done.id, 10).work, {{pack, 'rewrite'}})
        t:is(object.in_trash(pack), false)
    end)
end

test:test('a pack written anew takes the place of the old one in one step', function(t)
    t:plan(9)
    local first = tonumber(harness.publish('rewrite', 4))
    local pack = message.locate(first)[F.object_name]
    local done = deletion.message(first + 1, 'api', '')
    local new = target()
    local plan = erasure.plan(pack, new)
    t:is(#plan.kept, 2)
    t:is_deeply({tonumber(plan.kept[1][3]), tonumber(plan.kept[1][4])}, {9, 18}, 'what is before it')
    t:is_deeply({tonumber(plan.kept[2][3]), tonumber(plan.kept[2][4])}, {45, 36}, 'what is behind it')
    t:is(erasure.switch(pack, new, moves_of(plan), plan.missing, 3600), true)
    t:is_deeply({message.get(first)[F.object_name], tonumber(message.get(first)[F.byte_from]),
        tonumber(message.get(first + 2)[F.byte_from])}, {new, 100, 118})
    t:is(refs(new), 2)
    t:is_deeply(deletion.work(done.id, 10).work, {{pack, 'trash'}}, 'the old one goes at once')
    object.trash_done{pack}
    t:is(deletion.work(done.id, 10).deletion.done, true)
    t:is(erasure.plan(pack, target()), nil, 'nothing is left to do')
end)

test:test('whoever begins again takes the matter over', function(t)
    t:plan(5)
    local first = tonumber(harness.publish('two-workers', 3))
    local pack = message.locate(first)[F.object_name]
    deletion.message(first, 'api', '')
    local mine, theirs = target(), target()
    local plan = erasure.plan(pack, mine)
    local other = erasure.plan(pack, theirs)
    t:is(object.in_trash(mine), true, 'what the first one wrote is discarded')
    t:is(erasure.switch(pack, mine, moves_of(plan), plan.missing, 3600), false)
    t:is(message.get(first + 1)[F.object_name], pack)
    t:is(erasure.switch(pack, theirs, moves_of(other), other.missing, 3600), true)
    t:is(message.get(first + 1)[F.object_name], theirs)
end)

test:test('a row that changed since the plan stops the switch', function(t)
    t:plan(4)
    local first = tonumber(harness.publish('changed', 5))
    local pack = message.locate(first)[F.object_name]
    deletion.message(first, 'api', '')
    local new = target()
    local plan = erasure.plan(pack, new)
    deletion.message(first + 2, 'api', '') -- another one of the same pack
    t:is(erasure.switch(pack, new, moves_of(plan), plan.missing, 3600), false)
    t:is(object.in_trash(new), true, 'what was written goes')
    new = target()
    plan = erasure.plan(pack, new)
    t:is(erasure.switch(pack, new, moves_of(plan), plan.missing, 3600), true)
    t:is_deeply(sequences('changed'), {first + 1, first + 3, first + 4})
end)

test:test('what became visible since the plan stops the switch', function(t)
    t:plan(4)
    local open = harness.ticket('waited', 4, {producer_id = 'p', seqno = 1}).upload
    local packed = harness.pack{{subject = 'erased', sizes = {3}}, {subject = 'waited', sizes = {3}, byte_from = 20,
        marks = {{index = 0, producer_id = 'p', seqno = 2}}}}
    packs.commit(packed, 3600)
    deletion.message(message.latest('erased'), 'api', '')
    local new = target()
    local plan = erasure.plan(packed.object_name, new)
    harness.commit(open.id, 4)
    t:is(erasure.switch(packed.object_name, new, moves_of(plan), plan.missing, 3600), false)
    local row = message.locate(message.latest('waited'))
    t:is(row[F.object_name], packed.object_name, 'the message that waited is where its payload is')
    new = target()
    plan = erasure.plan(packed.object_name, new)
    t:is(erasure.switch(packed.object_name, new, moves_of(plan), plan.missing, 3600), true)
    t:is(message.locate(row[F.sequence])[F.object_name], new)
end)

test:test('a target that is too old is not switched to', function(t)
    t:plan(2)
    local first = tonumber(harness.publish('old', 3))
    local pack = message.locate(first)[F.object_name]
    deletion.message(first, 'api', '')
    local new = '_mts/packs/' .. clock.id_start(clock.milliseconds() - 1000 * 3600) .. '000-8000-000000000000'
    local plan = erasure.plan(pack, new)
    t:is(erasure.switch(pack, new, moves_of(plan), plan.missing, 3600), false)
    t:is(object.in_trash(new), true)
end)

test:test('a dead letter goes with the message it points at', function(t)
    t:plan(5)
    local first = tonumber(harness.publish('with-dlq', 3))
    local pack = message.locate(first)[F.object_name]
    dead_letter('with-dlq')
    local letter = message.latest('with-dlq.dlq')
    t:is(refs(pack), 2)
    local done = deletion.message(first, 'api', '')
    t:is_deeply({tonumber(done.sequences[1]), tonumber(done.sequences[2])}, {first, tonumber(letter)})
    t:is(#sequences('with-dlq.dlq'), 0)
    t:is(#sequences('with-dlq'), 2)
    t:is(refs(pack), 1)
end)

test:test('the message goes with the dead letter that points at it, far behind others', function(t)
    t:plan(4)
    local ticket = harness.ticket('origin', 5)
    local first = harness.commit(ticket.upload.id, 5).sequence
    for _ = 1, 1500 do
        harness.append('between', 0)
    end
    dead_letter('origin')
    t:is(refs(ticket.upload.object_name), 2)
    deletion.message(message.latest('origin.dlq'), 'api', '')
    t:is(message.get(first), nil)
    t:is(object.in_trash(ticket.upload.object_name), true)
    t:is_deeply({#sequences('origin'), #sequences('origin.dlq')}, {0, 0})
end)

test:test('wrong counts stop a deletion before anything is lost', function(t)
    t:plan(2)
    local first = tonumber(harness.publish('wrong', 2))
    box.space.object:update(message.locate(first)[F.object_name], {{'+', schema.object.refs, 1}})
    t:is(refusal(deletion.message, first, 'api', ''), 'inconsistent')
    t:is(#sequences('wrong'), 2)
end)

test:test('what waits in a pack moves with it', function(t)
    t:plan(4)
    local open = harness.ticket('waiting', 1, {producer_id = 'p', seqno = 1})
    local pack = require('mts.pack')
    local given = harness.pack{{subject = 'waiting', sizes = {10, 10},
        marks = {{index = 1, producer_id = 'p', seqno = 2}}}}
    local first = tonumber(pack.commit(given, 3600)[1].runs[1][3])
    deletion.message(first, 'api', '')
    local new = target()
    local plan = erasure.plan(given.object_name, new)
    t:is_deeply({#plan.kept, plan.kept[1][1]}, {1, 'upload'})
    t:is(erasure.switch(given.object_name, new, moves_of(plan), plan.missing, 3600), true)
    harness.commit(open.upload.id, 1)
    local row = message.get(message.latest('waiting'))
    t:is_deeply({row[F.object_name], tonumber(row[F.byte_from]), tonumber(row[F.size])}, {new, 100, 10})
    t:is(refs(new), 1)
end)

test:test('what a durable had handed out of it is forgotten', function(t)
    t:plan(3)
    local first = tonumber(harness.publish('leased', 3))
    consumer.put('leased', 'q', {mode = 'shared'})
    local leased = delivery.lease('leased', 'q', 3, 10)
    deletion.message(first + 1, 'api', '')
    t:is(tonumber(consumer.get('leased', 'q').outstanding), 2)
    t:is(refusal(delivery.ack, 'leased', 'q', leased.lease_id, {first + 1}), 'lease_lost')
    advance(20000)
    local again = delivery.lease('leased', 'q', 3, 10)
    t:is_deeply({tonumber(again.rows[1][F.sequence]), tonumber(again.rows[2][F.sequence])}, {first, first + 2})
end)

test:test('all messages of a subject go, some rows at a time, and the subject stays', function(t)
    t:plan(7)
    for _ = 1, 1200 do
        harness.append('purged', 0)
    end
    consumer.put('purged', 'reader', {})
    local shared = harness.pack{{subject = 'purged', sizes = {10, 10}},
        {subject = 'kept', sizes = {10}, byte_from = 45}}
    require('mts.pack').commit(shared, 3600)
    local job = deletion.subject('purged', 'api', 'owner left')
    t:is(deletion.subject('purged', 'api', '').id, job.id, 'one at a time')
    harness.publish('purged', 2) -- later: not its business
    local rounds = 0
    repeat
        rounds = rounds + 1
        local state = deletion.work(job.id, 1000)
        for _, item in ipairs(state.work) do
            if item[2] == 'trash' then
                object.trash_done{item[1]}
            end
        end
    until state.deletion.removed
    t:is(rounds, 3, '500 rows a transaction')
    t:is(#sequences('purged'), 2, 'what came later is there')
    t:is(tonumber(box.space.deletion:get(job.id)[D.messages]), 1202)
    t:is_deeply(counters('purged'), {2, 20})
    t:is_deeply(deletion.work(job.id, 10).work, {{shared.object_name, 'rewrite'}}, 'a pack that others need stays')
    t:is(consumer.get('purged', 'reader').durable, 'reader')
end)

test:test('rows without payload are handed out as such, and cut like others', function(t)
    t:plan(6)
    local first = tonumber(harness.publish('quarantine', 3))
    local pack = message.locate(first)[F.object_name]
    t:is(quarantine.add{{first + 2, pack, 'missing'}, {first + 2, 'another', 'missing'}}, 3)
    t:is(message.page('quarantine', 0, 2).rows[1][17], true)
    deletion.message(first + 1, 'api', '')
    t:is(message.get(first)[17], true, 'what is cut stays apart')
    t:is(box.space.missing:len(), 2)
    local new = target()
    local plan = erasure.plan(pack, new)
    t:is_deeply({#plan.kept, #plan.missing}, {0, 2}, 'there is nothing of it to keep')
    t:is(erasure.switch(pack, new, {}, plan.missing, 3600), true)
end)

test:test('what a restore brought back is deleted again', function(t)
    t:plan(6)
    local first = tonumber(harness.publish('again', 3))
    local id = clock.new_id()
    local record = {id = id, kind = 'message', subject = 'again', who = 'me', reason = 'law', sequences = {first + 1}}
    t:is(deletion.again(record), true)
    t:is_deeply(sequences('again'), {first, first + 2})
    t:is(deletion.again(record), false, 'once')
    t:is(box.space.deletion:get(id)[D.removed], true, 'under its own record')
    local all = {id = clock.new_id(), kind = 'subject', subject = 'again', who = 'me', reason = 'law', sequences = {},
        upto = first + 2}
    local later = tonumber(harness.publish('again', 1))
    t:is(deletion.again(all), true)
    t:is_deeply(sequences('again'), {later}, 'what came later stays')
end)

harness.finish(test)
