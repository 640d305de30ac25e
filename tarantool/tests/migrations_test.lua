-- Migrations: run again they change nothing, and after a crash at any of their writes they lead to the same schema.
-- Each attempt is a process of its own: this file runs itself with a mode and a folder.
local fio = require('fio')
local script = fio.abspath(arg[0])
local folder = fio.dirname(fio.dirname(script))
package.path = folder .. '/?.lua;' .. package.path

local json = require('json')
local tap = require('tap')

local FIRST_USER_SPACE = 512
local SYSTEM_SPACES = {'_space', '_index', '_sequence', '_space_sequence'}

local function open(work_dir)
    box.cfg{work_dir = work_dir, log_level = 1, feedback_enabled = false, memtx_memory = 32 * 1024 * 1024}
end

-- End without a word, as `kill -9` does, at the `point`-th write to the schema.
local function die_at(point)
    local ffi = require('ffi')
    ffi.cdef('int kill(int pid, int sig);')
    local seen = 0
    for _, name in ipairs(SYSTEM_SPACES) do
        box.space[name]:on_replace(function()
            seen = seen + 1
            if seen == point then
                ffi.C.kill(require('tarantool').pid(), 9)
            end
        end)
    end
end

-- Everything that the migrations make, as text; numbers that depend on the order of creation are left out.
local function fingerprint()
    local parts = {}
    for _, space in box.space._space:pairs({FIRST_USER_SPACE}, {iterator = 'GE'}) do
        table.insert(parts, {space.name, space.format})
        for _, index in box.space._index:pairs({space.id}, {iterator = 'EQ'}) do
            table.insert(parts, {space.name, index.name, index.parts, index.opts.unique})
        end
        local attached = box.space._space_sequence:get(space.id)
        local sequence = attached and box.space._sequence:get(attached.sequence_id)
        table.insert(parts, {space.name, sequence and sequence.name or 'no sequence'})
    end
    local lines = {}
    for _, part in ipairs(parts) do
        table.insert(lines, json.encode(part))
    end
    table.sort(lines)
    return table.concat(lines, '\n')
end

local function child(mode, work_dir, point)
    open(work_dir)
    if mode == 'crash' then
        die_at(tonumber(point))
        require('mts.migrations').run()
        print('survived')
    else
        local migrations = require('mts.migrations')
        migrations.run()
        migrations.run()
        print(json.encode{version = migrations.version(), recorded = box.space.migration:len(),
            steps = #migrations.STEPS, newest = migrations.STEPS[#migrations.STEPS].version, schema = fingerprint()})
    end
    os.exit(0)
end

if arg[1] then
    child(arg[1], arg[2], arg[3])
end

local function run(...)
    local process = io.popen(table.concat({arg[-1], script, ...}, ' ') .. ' 2>/dev/null', 'r')
    local output = process:read('*a')
    process:close()
    return output
end

local test = tap.test('migrations')
local clean = json.decode(run('finish', fio.tempdir()))
test:plan(3)

test:test('a new database gets the newest version', function(t)
    t:plan(3)
    t:is(clean.version, clean.newest, 'the version')
    t:is(clean.recorded, clean.steps, 'each migration is recorded once')
    t:like(clean.schema, '"message","message"', 'the sequence is attached to its space')
end)

test:test('run on a database that has them they change nothing', function(t)
    t:plan(1)
    local work_dir = fio.tempdir()
    run('finish', work_dir)
    t:is(json.decode(run('finish', work_dir)).schema, clean.schema, 'the same schema')
end)

test:test('after a crash in the middle they end in the same schema', function(t)
    local point, wrong, crashes = 1, {}, 0
    while true do
        local work_dir = fio.tempdir()
        if run('crash', work_dir, tostring(point)):match('survived') then
            break
        end
        crashes = crashes + 1
        local ok, result = pcall(json.decode, run('finish', work_dir))
        if not ok or result.schema ~= clean.schema then
            table.insert(wrong, point)
        end
        fio.rmtree(work_dir)
        point = point + 1
    end
    t:plan(2)
    t:ok(crashes > 20, 'there were many places to crash at')
    t:is_deeply(wrong, {}, 'each time the schema was the same in the end')
end)

os.exit(test:check() and 0 or 1)
