-- Rule 28: no sequence is given above the ceiling that the bucket knows.
package.path = require('fio').dirname(require('fio').abspath(arg[0])) .. '/?.lua;' .. package.path
local fio = require('fio')
local folder = fio.dirname(fio.dirname(fio.abspath(arg[0])))
package.path = folder .. '/?.lua;' .. folder .. '/tests/?.lua;' .. package.path
local tap = require('tap')
local harness = require('harness')
local ceiling = require('mts.ceiling')
local commit = require('mts.commit')
local pack = require('mts.pack')
local recovery = require('mts.recovery')
local spec_api = require('mts.spec_api')
local transaction = require('mts.transaction')
local transaction_end = require('mts.transaction_end')

local function stand_at(given, top)
    box.space.state:delete('ceiling')
    harness.go_on_after(given)
    if top then
        ceiling.raise(top)
    end
end

local function publish(count)
    return harness.refusal(harness.publish, 'orders', count)
end

local test = tap.test('ceiling')
test:plan(5)

test:test('a server that no host has opened gives no sequence', function(t)
    t:plan(3)
    stand_at(10ULL)
    t:is(publish(1), 'unavailable', 'not to a pack')
    t:is(harness.refusal(spec_api.publish_message, 'orders', {}), 'unavailable', 'not to the specification')
    t:is(harness.refusal(spec_api.get_next_sequence), 'unavailable', 'not alone')
end)

for _, start in ipairs{1000ULL, 1000000000000000ULL, 9007199254740993ULL} do
    test:test('up to the ceiling and no further, at ' .. tostring(start), function(t)
        t:plan(7)
        stand_at(start, start + 3)
        t:ok(publish(2) == start + 1, 'below it')
        t:is(publish(2), 'unavailable', 'a pack that would pass it is refused as a whole')
        t:ok(publish(1) == start + 3, 'which takes no number from the next, up to the ceiling itself')
        t:is(publish(1), 'unavailable', 'not above')
        ceiling.raise(start + 1)
        t:is(publish(1), 'unavailable', 'it never goes down')
        ceiling.plan(start + 4)
        t:is(publish(1), 'unavailable', 'a plan is no ceiling')
        ceiling.raise(start + 4)
        commit.start() -- as a server that is started again
        t:ok(publish(1) == start + 4, 'raised, it holds over a restart')
    end)
end

test:test('a transaction that meets the ceiling can be committed later', function(t)
    t:plan(4)
    stand_at(20000000000000000ULL, 20000000000000000ULL)
    local id = transaction.begin(60).transaction_id
    pack.commit(harness.pack{{subject = 'orders', sizes = {1}, transaction_id = id}}, 3600)
    t:is(harness.refusal(transaction_end.commit, id, 900), 'unavailable', 'not now')
    ceiling.raise(30000000000000000ULL)
    t:is(transaction_end.commit(id, 900).state, 'committed', 'later')
    recovery.need('the bucket is ahead')
    t:is(publish(1), 'unavailable', 'a server that is older than its bucket gives none')
    recovery.clear()
    t:ok(publish(1) > 20000000000000000ULL, 'until that is mended')
end)

harness.finish(test)
