-- Starts the metadata store: settings from the environment, migrations, grants, and only then the listener.
local folder = debug.getinfo(1, 'S').source:match('^@(.*)/[^/]*$') or '.'
package.path = folder .. '/?.lua;' .. folder .. '/?/init.lua;' .. package.path

local function setting(name, default)
    local value = os.getenv('MTS_TARANTOOL_' .. name)
    if value == nil or value == '' then
        return default
    end
    return value
end

box.cfg{
    work_dir = setting('DIR', '.'),
    memtx_memory = tonumber(setting('MEMORY', 256 * 1024 * 1024)),
    wal_mode = setting('WAL_MODE', 'write'),
    net_msg_max = 8192, -- every waiting reader holds one message
    readahead = 1024 * 1024,
    feedback_enabled = false,
    checkpoint_count = 2,
    checkpoint_wal_threshold = 256 * 1024 * 1024,
}

require('mts.migrations').run()
require('mts.commit').start()
require('mts.compare_clocks').start()
require('mts.ttl_fiber').start()
require('mts.journal_marks').start()
require('mts.recovery').start()
require('mts.grants').apply{
    user = setting('USER', 'mts'),
    password_file = setting('PASSWORD_FILE'),
}
box.cfg{listen = setting('LISTEN', '127.0.0.1:3301')}
