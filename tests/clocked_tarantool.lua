-- Tarantool as the stack runs it, with hands on it for tests: a clock that moves in no time, and what else only time
-- would bring about.
local fiber = require('fiber')
local system = require('clock')

local folder = os.getenv('MTS_TEST_LUA_FOLDER')
package.path = folder .. '/?.lua;' .. package.path

local real, real_monotonic, ahead, passed = fiber.time, system.monotonic, 0, 0
fiber.time = function()
    return real() + ahead
end
system.monotonic = function()
    return real_monotonic() + passed
end

local hands = require('mts.api')

-- Time passes.
function hands.clock_advance(_, seconds)
    ahead, passed = ahead + seconds, passed + seconds
    return ahead
end

-- Somebody sets the wall clock.
function hands.clock_set(_, seconds)
    ahead = ahead + seconds
    return ahead
end

-- Retention: the first extents of a subject go.
function hands.head_remove(_, subject, count)
    return require('mts.txn').run(function()
        local rows = box.space.message.index.subject_sequence:select({subject}, {limit = count})
        for _, row in ipairs(rows) do
            require('mts.message').remove(row, 'expired')
        end
        return #rows
    end)
end

-- A partition was written too fast for too long.
function hands.partition_split(_, subject, partition)
    return require('mts.txn').run(function()
        return require('mts.split').split(require('mts.subject').find(subject), partition, 64)
    end)
end

function hands.space_select(_, name, key)
    return box.space[name]:select(key)
end

-- Something went wrong with a row.
function hands.space_update(_, name, key, operations)
    return box.space[name]:update(key, operations)
end

function hands.space_insert(_, name, row)
    return box.space[name]:insert(row)
end

function hands.space_delete(_, name, key)
    return box.space[name]:delete(key)
end

-- All there is of a durable, as it is told and as it is stored.
function hands.durable_look(_, subject, durable)
    return {consumer = hands.consumer_get(nil, subject, durable), delivery = box.space.delivery:select{durable, subject},
        consumer_partition = box.space.consumer_partition:select{durable, subject}}
end

-- The first sequence follows this one: numbers change their nature on their way up.
local last = tonumber64(os.getenv('MTS_TEST_LAST_SEQUENCE') or '0')
local migrations = require('mts.migrations')
local migrate = migrations.run
function migrations.run()
    migrate()
    if last > 0 and box.space.message:len() == 0 and not pcall(box.sequence.message.current, box.sequence.message) then
        box.sequence.message:set(last)
    end
end

dofile(folder .. '/init.lua')
-- No host looks into a bucket here.
require('mts.ceiling').raise(2ULL ^ 62)
