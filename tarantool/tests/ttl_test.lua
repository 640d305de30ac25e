-- The specification's TTL functions, the fiber behind them, and the clocks that must agree (rule 27).
package.path = require('fio').dirname(require('fio').abspath(arg[0])) .. '/?.lua;' .. package.path
local harness = require('harness')
local clock = require('mts.clock')
local clocks = require('mts.compare_clocks')
local consumer = require('mts.consumer')
local errors = require('mts.errors')
local fiber = require('fiber')
local queues = require('queues')
local retention = require('mts.retention')
local spec_api = require('mts.spec_api')
local status = require('mts.status')
local system = require('clock')
local tap = require('tap')
local ttl = require('mts.ttl')
local ttl_fiber = require('mts.ttl_fiber')

local DAY = 24 * 3600
local real_time, real_monotonic, ahead, passed = fiber.time, system.monotonic, 0, 0
fiber.time = function()
    return real_time() + ahead
end
system.monotonic = function()
    return real_monotonic() + passed
end

-- Time passes; somebody sets the clock.
local function pass(seconds)
    ahead, passed = ahead + seconds, passed + seconds
end

local function set_clock(seconds)
    ahead = ahead + seconds
end

local function count(subject)
    return tonumber(spec_api.get_subject_message_count(subject))
end

local function eventually(check)
    local deadline = real_monotonic() + 20
    while not check() and real_monotonic() < deadline do
        fiber.sleep(0.01)
    end
    return check()
end

local test = tap.test('ttl')
test:plan(13)

test:test('configure_ttl keeps what is not named and answers true', function(t)
    t:plan(4)
    t:is_deeply(spec_api.get_ttl_status(), {enabled = false, default_ttl = DAY, check_interval = 60,
        fiber_running = false, channels = {}}, 'before: disabled')
    t:is(spec_api.configure_ttl{enabled = true, default_ttl = 3600, check_interval = 1800,
        channels = {logs = 604800}}, true, 'true')
    t:is_deeply(spec_api.get_ttl_status(), {enabled = true, default_ttl = 3600, check_interval = 1800,
        fiber_running = true, channels = {logs = 604800}}, 'all of it')
    spec_api.configure_ttl{default_ttl = 7200}
    t:is_deeply(spec_api.get_ttl_status(), {enabled = true, default_ttl = 7200, check_interval = 1800,
        fiber_running = true, channels = {logs = 604800}}, 'the rest stayed')
end)

test:test('a configuration that does not fit is refused with a reason and changes nothing', function(t)
    t:plan(10)
    for _, wrong in ipairs{'text', {default_ttl = 0}, {default_ttl = 10 * 365 * DAY + 1}, {default_ttl = '1d'},
        {check_interval = 0}, {channels = {logs = 0}}, {channels = {60}},
        {channels = {['../logs'] = 60}}, {enabled = 1}} do
        local ok, problem = pcall(spec_api.configure_ttl, wrong)
        t:ok(not ok and tostring(problem):match('^`'), tostring(problem))
    end
    t:is(ttl.get().default_ttl, 7200, 'nothing changed')
end)

test:test('start and stop answer as the specification says', function(t)
    t:plan(6)
    t:is(spec_api.start_ttl_cleanup(), false, 'it runs already')
    t:is(spec_api.stop_ttl_cleanup(), true, 'it stops')
    t:is(spec_api.get_ttl_status().fiber_running, false, 'it does not run')
    t:is(spec_api.get_ttl_status().enabled, false, 'and it is disabled')
    t:is(spec_api.start_ttl_cleanup(), false, 'disabled: it does not start')
    ttl.configure{enabled = true}
    t:is(spec_api.start_ttl_cleanup(), true, 'enabled: it starts')
end)

test:test('the fiber expires what is due, again and again', function(t)
    t:plan(3)
    spec_api.configure_ttl{enabled = true, default_ttl = 100, check_interval = 0.01}
    harness.publish('fiber', 2)
    pass(102)
    t:ok(eventually(function() return count('fiber') == 0 end), 'once')
    harness.publish('fiber', 2)
    pass(102)
    t:ok(eventually(function() return count('fiber') == 0 end), 'and again')
    spec_api.stop_ttl_cleanup()
    harness.publish('fiber', 2)
    pass(102)
    t:is(count('fiber'), 2, 'and no more when it is stopped')
end)

test:test('a round that fails does not end the fiber', function(t)
    t:plan(2)
    local run = retention.run
    local tries = 0
    retention.run = function()
        tries = tries + 1
        error('the disk is full')
    end
    spec_api.configure_ttl{enabled = true}
    t:ok(eventually(function() return tries > 2 end), 'it tries again')
    retention.run = run
    t:ok(eventually(function() return count('fiber') == 0 end), 'until it works')
    spec_api.stop_ttl_cleanup()
end)

test:test('a fiber that hangs is waited for, then cancelled', function(t)
    t:plan(2)
    local run, waiting = retention.run, fiber.cond()
    local entered = false
    retention.run = function()
        entered = true
        waiting:wait()
    end
    ttl_fiber.STOP_SECONDS = 0.05
    spec_api.configure_ttl{enabled = true}
    eventually(function() return entered end)
    t:is(spec_api.stop_ttl_cleanup(), true, 'stopped')
    t:ok(eventually(function() return not ttl_fiber.is_running() end), 'and gone')
    retention.run = run
end)

test:test('delete_old_messages deletes by the given age and names what was deleted', function(t)
    t:plan(7)
    ttl.configure{enabled = true, default_ttl = 10 * DAY}
    local first = harness.publish('old', 2)
    local plain = harness.ticket('old', 5).upload
    harness.commit(plain.id, 5)
    spec_api.publish_message('old', 'theirs/1', {})
    pass(50)
    harness.publish('old', 1)
    local deleted, named = spec_api.delete_old_messages(49)
    t:is(deleted, 4, 'how many')
    t:is(tonumber(named[1].sequence), tonumber(first), 'each with its sequence')
    t:is(named[2].subject, 'old', 'its subject')
    t:is(named[3].object_name, plain.object_name, 'its object')
    t:is(named[4].object_name, 'theirs/1', 'one that is not ours, too')
    t:is(box.space.trash:get('theirs/1'), nil, 'which we do not delete')
    t:is(count('old'), 1, 'the young one stays')
end)

test:test('delete_old_messages names an object only when nothing else points at it', function(t)
    t:plan(3)
    local first = queues.create('shared', 1, {max_deliver = 1})
    local leased = queues.lease('shared', 1)
    pass(50)
    require('mts.delivery').nack('shared', 'q', leased.lease_id, {first})
    local deleted, named = spec_api.delete_old_messages(49)
    local found
    for _, entry in ipairs(named) do
        found = entry.subject == 'shared' and entry or found
    end
    t:ok(deleted >= 1 and found, 'the message is deleted')
    t:is(found.object_name, nil, 'a dead letter points at its object')
    t:is(count('shared.dlq'), 1, 'which stays')
end)

test:test('delete_old_messages is held back by important durables and refuses nonsense', function(t)
    t:plan(3)
    harness.publish('careful', 1)
    consumer.put('careful', 'c', {important = true})
    pass(50)
    spec_api.delete_old_messages(49)
    t:is(count('careful'), 1, 'held')
    t:is(pcall(spec_api.delete_old_messages, 0), false, 'not zero')
    t:is(pcall(spec_api.delete_old_messages, 'all'), false, 'not text')
    consumer.delete('careful', 'c')
end)

test:test('a clock that jumps is not trusted until a host has compared it', function(t)
    t:plan(8)
    harness.publish('jump', 1)
    set_clock(20 * DAY)
    local messages, differ = retention.run()
    t:is(messages .. tostring(differ), '0true', 'forward: nothing expires')
    t:is(tostring(select(2, pcall(spec_api.delete_old_messages, 1))), 'the clocks of Tarantool and of the object store '
        .. 'differ, or were not compared yet', 'not by hand either')
    local store = (real_time() + passed) * 1000
    t:is(clocks.compare(store).agree, false, 'the store has another time')
    t:ok(math.abs(status.retention().drift_ms - 20 * DAY * 1000) < 10000, 'it is told by how much')
    t:is((retention.run()), 0, 'nothing expires')
    set_clock(-20 * DAY)
    t:is(clocks.compare(store).agree, true, 'set right')
    t:is((retention.run()), 0, 'what is young stays')
    pass(11 * DAY)
    t:ok(retention.run() > 0, 'what is old goes')
end)

test:test('a clock set back lets nothing expire early', function(t)
    t:plan(3)
    harness.publish('back', 1)
    set_clock(-3600)
    t:is(clocks.are_right(), false, 'it is noticed')
    clocks.compare(clock.milliseconds())
    pass(10 * DAY + 1)
    retention.run()
    t:is(count('back'), 1, 'its time counts from when it was stored')
    pass(3601)
    retention.run()
    t:is(count('back'), 0, 'and then it goes')
end)

test:test('after a restart hosts that were there must compare first', function(t)
    t:plan(3)
    clocks.start()
    t:is(clocks.are_right(), false, 'a host compared before')
    clocks.compare(clock.milliseconds())
    t:is(clocks.are_right(), true, 'and again')
    box.space.state:delete('clock')
    clocks.start()
    t:is(clocks.are_right(), true, 'where there never was one, there is nothing to compare')
end)

test:test('a host applies its settings, and leaves what an operator configured', function(t)
    t:plan(9)
    box.space.state:delete('ttl')
    local wanted = {enabled = true, default_ttl = 500, check_interval = 100, channels = {}}
    t:is(ttl_fiber.apply(wanted, false), true, 'nobody configured anything yet')
    wanted.default_ttl = 600
    t:is(ttl_fiber.apply(wanted, false) and ttl.get().default_ttl, 600, 'the last one was a host')
    spec_api.configure_ttl{default_ttl = 700}
    t:is(ttl_fiber.apply(wanted, false), false, 'an operator configured it: defaults do not count')
    t:is(ttl.get().default_ttl, 700, 'it stays')
    t:is(ttl_fiber.apply(wanted, true) and ttl.get().default_ttl, 600, 'what somebody wrote down counts')
    spec_api.configure_ttl{default_ttl = 800}
    t:is(ttl_fiber.apply(wanted, true), false, 'once: the same again changes nothing that was configured since')
    t:is(ttl.get().default_ttl, 800, 'which stays')
    wanted.default_ttl = 900
    t:is(ttl_fiber.apply(wanted, true) and ttl.get().default_ttl, 900, 'until something else is written down')
    t:is(errors.is_refusal(select(2, pcall(ttl_fiber.apply, {default_ttl = 0}, true))), true, 'if it fits')
    spec_api.stop_ttl_cleanup()
end)

harness.finish(test)
