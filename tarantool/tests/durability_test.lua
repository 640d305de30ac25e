-- Rule 1: no answer from a row whose log write has not ended. The disk is made full by a limit on the size of files.
package.path = require('fio').dirname(require('fio').abspath(arg[0])) .. '/?.lua;' .. package.path
local harness = require('harness')
local ffi = require('ffi')
local fiber = require('fiber')
local idempotency = require('mts.idempotency')
local message = require('mts.message')
local outcome = require('mts.upload_outcome')
local pack = require('mts.pack')
local schema = require('mts.schema')
local spec_api = require('mts.spec_api')
local tap = require('tap')
local upload = require('mts.upload')

ffi.cdef[[
    struct mts_rlimit { unsigned long soft, hard; };
    int getrlimit(int resource, struct mts_rlimit *limit);
    int setrlimit(int resource, const struct mts_rlimit *limit);
    void (*signal(int number, void (*handler)(int)))(int);
]]
local SIGXFSZ, SIG_IGN, RLIMIT_FSIZE = 25, 1, 1
ffi.C.signal(SIGXFSZ, ffi.cast('void (*)(int)', SIG_IGN)) -- an error, not a signal, when a file would grow

local function full_disk(is_full)
    local limit = ffi.new('struct mts_rlimit')
    ffi.C.getrlimit(RLIMIT_FSIZE, limit)
    limit.soft = is_full and 1 or limit.hard
    assert(ffi.C.setrlimit(RLIMIT_FSIZE, limit) == 0)
end

-- Run `work(fiber number)` in many fibers while the disk fills up and gets free again.
local function under_pressure(fibers, work)
    local running = fibers
    for number = 1, fibers do
        fiber.create(function()
            work(number)
            running = running - 1
        end)
    end
    while running > 0 do
        full_disk(true)
        fiber.sleep(0.0005)
        full_disk(false)
        fiber.sleep(0.001)
    end
end

local F = schema.message
local test = tap.test('durability')
test:plan(4)

test:test('what is answered is stored once, what is refused is not stored', function(t)
    t:plan(5)
    local answered, refused, vanished, seen = {}, {}, 0, {}
    under_pressure(64, function(number)
        for step = 1, 100 do
            local name = ('%d-%d'):format(number, step)
            local ok, sequence = pcall(spec_api.publish_message, 'load', name, {})
            if ok then
                answered[name] = tonumber(sequence)
            else
                table.insert(refused, name)
            end
            for _, row in ipairs(message.page('load', 1, 3).rows) do
                seen[row[F.object_name]] = true
            end
        end
    end)
    local rows, doubled, lost, stored = {}, 0, 0, 0
    for _, row in box.space.message:pairs() do
        doubled = doubled + (rows[row[F.object_name]] and 1 or 0)
        rows[row[F.object_name]] = tonumber(row[F.sequence])
    end
    for name, sequence in pairs(answered) do
        lost = lost + (rows[name] == sequence and 0 or 1)
    end
    for _, name in ipairs(refused) do
        stored = stored + (rows[name] and 1 or 0)
    end
    for name in pairs(seen) do
        vanished = vanished + (rows[name] and 0 or 1)
    end
    t:ok(#refused > 0 and next(answered) ~= nil, 'some were answered, some refused')
    t:is(lost, 0, 'nothing that was answered is missing')
    t:is(doubled, 0, 'nothing is stored twice')
    t:is(stored, 0, 'nothing that was refused is stored')
    t:is(vanished, 0, 'no reader saw what is not there any more')
end)

test:test('nobody hears of a commit that did not happen', function(t)
    t:plan(3)
    local ids, lies, commits = {}, 0, 0
    for number = 1, 40 do
        ids[number] = harness.ticket('uploads', 1).upload.id
    end
    local said = {}
    under_pressure(64, function(number)
        for _, id in ipairs(ids) do
            local ok, receipt = pcall(number % 2 == 0 and harness.commit or function(wanted)
                return upload.get(wanted).receipt
            end, id, 1)
            if ok and receipt.state == 'committed' then
                said[id] = said[id] or tostring(receipt.sequence)
                lies = lies + (said[id] ~= tostring(receipt.sequence) and 1 or 0)
            end
        end
    end)
    for id, sequence in pairs(said) do
        commits = commits + 1
        local row = box.space.upload:get(id)
        lies = lies + (tostring(row[schema.upload.sequence]) ~= sequence and 1 or 0)
    end
    t:ok(commits > 0, 'some were committed')
    t:is(lies, 0, 'every answer still holds')
    t:is(harness.refusal(outcome.abort, next(said), 900), 'upload_final', 'a committed one stays so')
end)

test:test('a full disk is an answer the caller can act on', function(t)
    t:plan(2)
    local api = require('mts.api')
    local spec = {size = 1, content_type = 'text/plain', headers = setmetatable({}, {__serialize = 'map'})}
    full_disk(true)
    local answer = api.upload_create('request', 'full', {spec}, harness.TIMES)
    full_disk(false)
    t:is(answer.error.code, 'unavailable', 'it says unavailable')
    t:like(answer.error.message, 'disk', 'and why')
end)

test:test('keys of publishes that failed do not push out those that count', function(t)
    t:plan(2)
    idempotency.KEPT = 3
    local function publish(key)
        return harness.refusal(pack.commit, harness.pack{{subject = 'keys', sizes = {1},
            marks = {{index = 0, key = key, digest = 'd'}}}}, 3600)
    end
    publish('first')
    full_disk(true)
    for number = 1, 10 do
        publish('failed' .. number)
    end
    full_disk(false)
    publish('second')
    publish('third')
    t:is(publish('first')[1].others[1].duplicate, true, 'the first of three is still known')
    publish('fourth')
    t:is(#publish('first')[1].others, 0, 'the fourth pushes it out')
end)

harness.finish(test)
