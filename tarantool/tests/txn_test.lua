-- Transactions leave nothing in memory but their rows, however many there are.
package.path = require('fio').dirname(require('fio').abspath(arg[0])) .. '/?.lua;' .. package.path
require('harness')
local fiber = require('fiber')
local message = require('mts.message')
local spec_api = require('mts.spec_api')
local tap = require('tap')
local txn = require('mts.txn')

local function live()
    collectgarbage('collect')
    collectgarbage('collect')
    return collectgarbage('count')
end

local function publish(count)
    for number = 1, count do
        spec_api.publish_message('load', ('object-%d'):format(number), {})
    end
end

local test = tap.test('txn')
test:plan(4)

test:test('memory does not grow with transactions', function(t)
    t:plan(1)
    publish(1000)
    local before = live()
    publish(10000)
    t:ok(live() - before < 200, ('10,000 took %d KB'):format(live() - before))
end)

test:test('whoever is answered finds its message, and all before it', function(t)
    t:plan(1)
    local missing, running = 0, 50
    for number = 1, running do
        fiber.create(function()
            for _ = 1, 20 do
                local sequence = spec_api.publish_message('order', ('%d'):format(number), {})
                if message.latest('order') < sequence or message.get(sequence) == nil then
                    missing = missing + 1
                end
            end
            running = running - 1
        end)
    end
    while running > 0 do
        fiber.sleep(0.001)
    end
    t:is(missing, 0)
end)

test:test('a transaction tells whether it wrote', function(t)
    t:plan(2)
    local heard = 0
    txn.on_durable(function(effects)
        heard = heard + (effects.mine and 1 or 0)
    end)
    t:is(txn.run(function(effects)
        effects.mine = true
        return 'nothing written'
    end), 'nothing written')
    t:is(heard, 1, 'who wrote nothing is heard of, too')
end)

test:test('a listener that fails holds up nobody else', function(t)
    t:plan(3)
    txn.on_durable(function(effects)
        if effects.fails then
            error('no memory left')
        end
    end)
    local ok, problem = pcall(txn.run, function(effects)
        effects.fails = true
        box.space.state:replace{'test', {}}
    end)
    t:is(ok, false, 'its caller hears of it')
    t:like(problem, 'no memory left', 'as it is')
    local answer
    fiber.create(function()
        answer = txn.run(function() return 'read' end)
    end)
    for _ = 1, 100 do
        fiber.sleep(answer and 0 or 0.01)
    end
    t:is(answer, 'read', 'and who reads next is answered')
end)

os.exit(test:check() and 0 or 1)
