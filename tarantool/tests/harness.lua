-- A fresh database in a temporary folder (below TMPDIR) for each test file, with the modules under test on the path.
local fio = require('fio')
local folder = fio.dirname(fio.dirname(fio.abspath(arg[0])))
package.path = folder .. '/?.lua;' .. folder .. '/tests/?.lua;' .. package.path

box.cfg{work_dir = fio.tempdir(), log_level = 1, feedback_enabled = false, memtx_memory = 64 * 1024 * 1024}
require('mts.migrations').run()
require('mts.commit').start()

local clock = require('mts.clock')
local outcome = require('mts.upload_outcome')
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
