-- Messages of the first server keep their sequences and times; nothing else is published meanwhile.
package.path = require('fio').dirname(require('fio').abspath(arg[0])) .. '/?.lua;' .. package.path
local fio = require('fio')
local folder = fio.dirname(fio.dirname(fio.abspath(arg[0])))
package.path = folder .. '/?.lua;' .. folder .. '/tests/?.lua;' .. package.path
local tap = require('tap')
local harness = require('harness')
local ceiling = require('mts.ceiling')
local commit = require('mts.commit')
local import = require('mts.legacy_import')
local message = require('mts.message')
local recovery = require('mts.recovery')
local schema = require('mts.schema')

local F = schema.message
local EMPTY = setmetatable({}, {__serialize = 'map'})

local function row(sequence, subject, create_at, is_missing)
    return {sequence, EMPTY, subject .. '_' .. tostring(sequence):match('%d+'), subject, create_at, 7, 'text/plain',
        is_missing or false}
end

local test = tap.test('import')
test:plan(8)

test:test('an import that ended between its first two writes begins again, and nobody publishes meanwhile', function(t)
    t:plan(3)
    recovery.set('importing')
    t:is(harness.refusal(harness.publish, 'orders', 1), 'unavailable', 'nobody publishes')
    t:is(import.begin('old:3301').upto, 0, 'it begins')
    box.space.state:delete('import')
    recovery.clear()
    t:is(recovery.state(), nil, 'as before')
end)

test:test('an import closes the server for all others', function(t)
    t:plan(3)
    t:is(harness.refusal(import.apply, {row(5, 'orders', 100)}), 'recovery_conflict', 'nothing before it begins')
    t:is(import.begin('old:3301').upto, 0, 'it begins with nothing')
    t:is(harness.refusal(harness.publish, 'orders', 1), 'unavailable', 'nobody else publishes')
end)

test:test('rows keep what they had', function(t)
    t:plan(6)
    t:is(import.apply{row(5, 'orders', 100), row(9, 'logs', 90), row(10, 'orders', 95)}, 3, 'all are taken')
    t:is(import.apply{row(9, 'logs', 90), row(10, 'orders', 95), row(12, 'orders', 130)}, 1, 'and none twice')
    local rows = message.page('orders', 0, 10).rows
    t:is(#rows, 3, 'readers see them')
    t:ok(rows[1][F.sequence] == 5 and rows[1][F.create_at] == 100, 'with their numbers and times')
    t:is(rows[2][F.create_at], 100, 'time does not step back within a subject')
    t:is(rows[3][F.offset], 2, 'offsets are dense')
end)

test:test('a message without payload is never seen as an empty one', function(t)
    t:plan(2)
    import.apply{row(13, 'lost', 130, true), row(14, 'lost', 130)}
    local rows = message.page('lost', 0, 10).rows
    t:is(rows[1][17], true, 'it is marked in the transaction that makes it visible')
    t:is(rows[2][17], nil, 'and its neighbour is not')
end)

test:test('an interrupted import goes on with the same source alone', function(t)
    t:plan(3)
    commit.start() -- as a server that is started again
    recovery.start()
    t:is(harness.refusal(import.begin, 'other:3301'), 'recovery_conflict', 'not with another')
    t:ok(import.begin('old:3301').upto == 14, 'it knows how far it got')
    t:is(harness.refusal(harness.publish, 'orders', 1), 'unavailable', 'and is still closed')
end)

test:test('no sequence comes that the bucket does not know of', function(t)
    t:plan(2)
    local top = ceiling.get().top
    t:is(harness.refusal(import.apply, {row(top + 1, 'orders', 200)}), 'unavailable', 'not as a row')
    t:is(harness.refusal(import.go_on_behind, top + 1), 'unavailable', 'not as a number')
end)

test:test('numbers go on behind what was given', function(t)
    t:plan(3)
    import.go_on_behind(9007199254740993ULL)
    t:ok(import.finish(), 'it ends')
    t:ok(harness.publish('orders', 1) == 9007199254740994ULL, 'and the next number is new')
    t:is(import.begin('old:3301').done, true, 'what has ended is known')
end)

test:test('a server with messages takes no import', function(t)
    t:plan(1)
    box.space.state:delete('import')
    t:is(harness.refusal(import.begin, 'old:3301'), 'recovery_conflict', 'it is refused')
end)

harness.finish(test)
