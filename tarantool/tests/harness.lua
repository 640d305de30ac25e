-- A fresh database in a temporary folder (below TMPDIR) for each test file, with the modules under test on the path.
-- MTS_TEST_DIR opens an existing one: for tests that run parts of themselves as processes to be killed.
local fio = require('fio')
local folder = fio.dirname(fio.dirname(fio.abspath(arg[0])))
package.path = folder .. '/?.lua;' .. folder .. '/tests/?.lua;' .. package.path

box.cfg{work_dir = os.getenv('MTS_TEST_DIR') or fio.tempdir(), log_level = 1, feedback_enabled = false,
    memtx_memory = 64 * 1024 * 1024}
require('mts.migrations').run()
require('mts.commit').start()
require('mts.compare_clocks').start()
require('mts.ceiling').raise(2ULL ^ 62) -- as a host does when it has looked into the bucket

local clock = require('mts.clock')
local commit = require('mts.commit')
local outcome = require('mts.upload_outcome')
local pack = require('mts.pack')
local subjects = require('mts.subject')
local txn = require('mts.txn')
local upload = require('mts.upload')

local M = {TIMES = {life = 3600, producer_life = 900, first_look = 30, max_life = 604800, put_grace = 900}}

local EMPTY = setmetatable({}, {__serialize = 'map'})

function M.ticket(subject, size, more)
    local spec = {size = size, content_type = 'text/plain', headers = EMPTY}
    for key, value in pairs(more or {}) do
        spec[key] = value
    end
    return upload.create(subject, {spec}, M.TIMES)[1]
end

function M.commit(id, size)
    return outcome.commit({{id, size, nil, true}}, M.TIMES.put_grace)[1]
end

function M.pack(groups)
    for _, group in ipairs(groups) do
        group.headers = group.headers or EMPTY
        group.byte_from = group.byte_from or 9
    end
    return {object_name = '_mts/packs/' .. clock.new_id(), groups = groups}
end

-- A pack of so many messages in one subject; returns the sequence of the first.
function M.publish(subject, count, more)
    local group = {subject = subject, sizes = {}}
    for i = 1, count do
        group.sizes[i] = 10
    end
    for key, value in pairs(more or {}) do
        group[key] = value
    end
    return pack.commit(M.pack{group}, 3600)[1].runs[1][3]
end

-- A message in a partition of one's choice; returns its sequence.
function M.append(subject, partition, count)
    return txn.run(function(effects)
        subjects.ensure(subject)
        return (commit.append(effects, subject, partition, {headers = EMPTY, object_name = 'm/' .. clock.new_id(),
            count = count or 1, size = 1, byte_from = 0, sizes = count and {1, 1, 1}}))
    end)
end

-- The steady clock stands still; the function that is returned moves it on by milliseconds.
function M.hold_clock()
    local now = clock.steady_ms()
    clock.steady_ms = function()
        return now
    end
    return function(milliseconds)
        now = now + milliseconds
    end
end

-- All that depends on numbers must hold also where they are no Lua numbers any more: the next sequence follows `last`.
M.HIGH = {1000000000000000ULL, 9007199254740993ULL}

function M.go_on_after(last)
    box.sequence.message:set(last)
    commit.start()
end

-- The code of the refusal that `fn` ends in, or what it returned.
function M.refusal(fn, ...)
    local ok, result = pcall(fn, ...)
    if ok then
        return result
    end
    return type(result) == 'table' and result.code or tostring(result)
end

function M.finish(test)
    local passed = test:check()
    os.exit(passed and 0 or 1)
end

return M
