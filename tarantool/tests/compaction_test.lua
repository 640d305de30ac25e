-- Compaction: rows point at another object, in one transaction or not at all (rules 23 to 25).
package.path = require('fio').dirname(require('fio').abspath(arg[0])) .. '/?.lua;' .. package.path
local harness = require('harness')
local clock = require('mts.clock')
local compaction = require('mts.compaction')
local deletion = require('mts.deletion')
local extent = require('mts.extent')
local message = require('mts.message')
local object = require('mts.object')
local quarantine = require('mts.quarantine')
local schema = require('mts.schema')
local tap = require('tap')

local F, T = schema.message, schema.trash
local GRACE = 3600
local test = tap.test('compaction')
test:plan(8)

local function target()
    return object.PACKS .. clock.new_id()
end

local function plain(subject, size)
    local ticket = harness.ticket(subject, size, {sha256 = ('a'):rep(64)})
    return harness.commit(ticket.upload.id, size).sequence
end

local function row_of(sequence)
    return (message.locate(sequence))
end

-- Moves that lay the rows of these messages one behind the other, each framed.
local function moves_of(sequences)
    local moves, at = {}, 50
    for _, sequence in ipairs(sequences) do
        local row = row_of(sequence)
        local first, bytes = extent.span(row)
        table.insert(moves, {row[F.sequence], row[F.object_name], first, bytes, at})
        at = at + bytes + (row[F.byte_from] == nil and schema.FRAME_PREFIX or 0)
    end
    return moves
end

test:test('plain messages move into a pack, and stay what they are', function(t)
    t:plan(8)
    local one, two = plain('a', 5), plain('a', 7)
    local before, into = row_of(two):totable(), target()
    local moves = moves_of{one, two}
    t:is(compaction.switch(into, moves, GRACE), true)
    local row = row_of(two)
    t:is(row[F.object_name], into)
    t:is(row[F.byte_from], 63)
    t:is(row[F.sha256], nil, 'the whole object is not theirs alone')
    before[F.object_name], before[F.byte_from], before[F.sha256] = into, 63, box.NULL
    t:is_deeply(row:totable(), before, 'nothing else changed')
    t:is(object.refs(into), 2)
    local trashed = box.space.trash:get(moves[1][2])
    t:is(trashed[T.reason], object.MOVED, 'it waits for the journal')
    t:ok(trashed[T.due_at] >= clock.seconds() + object.grace() - 1, 'what they were in stays for the grace')
end)

test:test('an extent moves as a whole, and its old pack stays while others need it', function(t)
    t:plan(4)
    local pack = harness.pack{{subject = 'b', sizes = {4, 4, 4}}, {subject = 'c', sizes = {4}, byte_from = 45}}
    local runs = require('mts.pack').commit(pack, GRACE)
    local sequence, into = runs[1].runs[1][3], target()
    local one = plain('b', 9)
    t:is(compaction.switch(into, moves_of{sequence, one}, GRACE), true)
    t:is(row_of(sequence)[F.byte_from], 50)
    t:is(object.refs(pack.object_name), 1)
    t:is(object.in_trash(pack.object_name), false)
end)

test:test('one row that is gone leaves all others where they are, and the target goes at once', function(t)
    t:plan(4)
    local one, two, into = plain('d', 5), plain('d', 5), target()
    local moves = moves_of{one, two}
    deletion.message(two, 'api', 'asked for')
    t:is(compaction.switch(into, moves, GRACE), false)
    t:is(row_of(one)[F.object_name], moves[1][2])
    t:is(box.space.trash:get(into)[T.reason], 'abandoned_compaction')
    t:is(box.space.trash:get(into)[T.due_at] <= clock.seconds(), true)
end)

test:test('a row that moved meanwhile does the same', function(t)
    t:plan(3)
    local one, two, first, second = plain('e', 5), plain('e', 5), target(), target()
    local moves = moves_of{one, two}
    t:is(compaction.switch(first, moves, GRACE), true)
    t:is(compaction.switch(second, moves, GRACE), false)
    t:is(row_of(one)[F.object_name], first)
end)

test:test('asked again, it was done', function(t)
    t:plan(2)
    local one, two, into = plain('f', 5), plain('f', 5), target()
    local moves = moves_of{one, two}
    t:is(compaction.switch(into, moves, GRACE), true)
    t:is(compaction.switch(into, moves, GRACE), true)
end)

test:test('a target that the reconciler may have given up is refused', function(t)
    t:plan(2)
    local one, two = plain('g', 5), plain('g', 5)
    local old = object.PACKS .. clock.id_start(clock.milliseconds() - GRACE * 1000)
    old = old .. target():sub(#old + 1)
    t:is(compaction.switch(old, moves_of{one, two}, GRACE), false)
    local into = target()
    object.discard(into, 'uncommitted_pack')
    t:is(compaction.switch(into, moves_of{one, two}, GRACE), false)
end)

test:test('rows without payload do not move', function(t)
    t:plan(1)
    local one, two = plain('h', 5), plain('h', 5)
    quarantine.add{{one, row_of(one)[F.object_name], 'missing'}}
    t:is(compaction.switch(target(), moves_of{one, two}, GRACE), false)
end)

test:test('numbers above those of Lua move too', function(t)
    t:plan(2)
    harness.go_on_after(harness.HIGH[2])
    local one, two, into = plain('i', 5), plain('i', 5), target()
    t:is(compaction.switch(into, moves_of{one, two}, GRACE), true)
    t:is(row_of(two)[F.object_name], into)
end)

harness.finish(test)
