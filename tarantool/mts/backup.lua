-- A snapshot of this server, read in pieces. While one is being read, its file is not removed.
local digest = require('digest')
local errors = require('mts.errors')
local ffi = require('ffi')
local fiber = require('fiber')
local fio = require('fio')

local M = {}

local LONGEST_WAIT = 600
local LARGEST_PIECE = 4 * 1024 * 1024

local function path_of(name)
    if not name:match('^%d+%.snap$') then
        errors.refuse('bad_request', 'this is not the name of a snapshot')
    end
    local folder = box.cfg.memtx_dir
    if folder:sub(1, 1) ~= '/' and box.cfg.work_dir then
        folder = fio.pathjoin(box.cfg.work_dir, folder)
    end
    return fio.pathjoin(folder, name)
end

-- Where none is being read, there is nothing to stop.
local function stop_reading()
    pcall(box.backup.stop)
end

-- One that the server itself, or another backup, is making already is waited for.
local function make_snapshot()
    local deadline = fiber.clock() + LONGEST_WAIT
    local ok, problem = pcall(box.snapshot)
    while not ok and tostring(problem):find('in progress') and fiber.clock() < deadline do
        fiber.sleep(0.1)
        ok, problem = pcall(box.snapshot)
    end
    if not ok then
        errors.refuse('unavailable', 'no snapshot can be made now: ' .. tostring(problem))
    end
end

-- Make a snapshot; answers {name, size} of its file.
function M.begin()
    make_snapshot()
    stop_reading()
    for _, path in ipairs(box.backup.start()) do
        if path:match('%.snap$') then
            local name = fio.basename(path)
            return {name = name, size = fio.stat(path_of(name)).size}
        end
    end
    stop_reading()
    errors.refuse('unavailable', 'Tarantool made no snapshot')
end

-- Up to 4 MiB of the file from `offset` on, in base64: what is called over the wire is text. It is read off the
-- transaction thread; another backup may have ended this one meanwhile.
function M.read(name, offset, size)
    local file = fio.open(path_of(name), {'O_RDONLY'})
    if file == nil then
        errors.refuse('unavailable', 'the snapshot is gone; another backup was begun meanwhile')
    end
    size = math.min(size, LARGEST_PIECE)
    -- Into memory of its own: else Tarantool 2.6 reads into the buffer in which every other fiber encodes its keys,
    -- while these run. They look for keys that are bytes of the file, and the file gets bytes of keys.
    local own = ffi.new('char[?]', size)
    local count = file:pread(ffi.cast('const char *', own), size, offset)
    file:close()
    if count == nil then
        errors.refuse('unavailable', 'the snapshot cannot be read')
    end
    return digest.base64_encode(ffi.string(own, count), {nowrap = true})
end

function M.finish()
    stop_reading()
    return true
end

return M
