-- A backup is read while everything else goes on: neither disturbs the other.
package.path = require('fio').dirname(require('fio').abspath(arg[0])) .. '/?.lua;' .. package.path
local harness = require('harness')
local backup = require('mts.backup')
local digest = require('digest')
local fiber = require('fiber')
local fio = require('fio')
local message = require('mts.message')
local tap = require('tap')

local refusal = harness.refusal
local test = tap.test('backup')
test:plan(3)

local function content(name)
    local file = assert(io.open(fio.pathjoin(box.cfg.work_dir, name), 'rb'))
    local text = file:read('*a')
    file:close()
    return text
end

for number = 1, 50 do
    harness.publish('orders-' .. number, 3)
end

test:test('a snapshot that is read beside lookups comes as it is, and they find what is there', function(t)
    t:plan(3)
    local begun = backup.begin()
    local expected = content(begun.name)
    local reading, lookups, wrong, differing = true, 0, 0, 0
    local looker = fiber.new(function()
        while reading do
            for number = 1, 50 do
                lookups = lookups + 1
                local ok, found = pcall(message.latest, 'orders-' .. number)
                wrong = wrong + ((not ok or found ~= 3 * number) and 1 or 0)
                fiber.yield()
            end
        end
    end)
    looker:set_joinable(true)
    for _ = 1, 300 do
        local piece = digest.base64_decode(backup.read(begun.name, 0, begun.size))
        differing = differing + (piece ~= expected and 1 or 0)
    end
    reading = false
    looker:join()
    backup.finish()
    t:ok(lookups > 300, 'they ran side by side')
    t:is(wrong, 0, 'each found its message')
    t:is(differing, 0, 'each piece is what is in the file')
end)

test:test('a piece begins where it is asked for and ends with the file', function(t)
    t:plan(3)
    local begun = backup.begin()
    local expected = content(begun.name)
    t:is(digest.base64_decode(backup.read(begun.name, 5, 10)), expected:sub(6, 15))
    t:is(digest.base64_decode(backup.read(begun.name, begun.size - 3, 100)), expected:sub(-3))
    t:is(backup.read(begun.name, begun.size, 100), '', 'behind it is nothing')
    backup.finish()
end)

test:test('what is no snapshot is not read', function(t)
    t:plan(2)
    t:is(refusal(backup.read, '../../etc/passwd', 0, 10), 'bad_request')
    t:is(refusal(backup.read, ('0'):rep(20) .. '9.snap', 0, 10), 'unavailable')
end)

harness.finish(test)
