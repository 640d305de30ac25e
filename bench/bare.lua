-- A Tarantool without us: rows that were read from ours, in a space of their own, for anybody here to select.
local fio = require('fio')
local msgpack = require('msgpack')

box.cfg{feedback_enabled = false, wal_mode = 'none', readahead = 1024 * 1024}
for _, name in ipairs{'LUA', 'box.schema.user.info'} do
    box.schema.role.revoke('public', 'execute', 'function', name, {if_exists = true})
end
box.schema.user.revoke('guest', 'public', nil, nil, {if_exists = true})
local message = box.schema.space.create('message', {id = tonumber(os.getenv('BARE_SPACE'))})
message:create_index('primary', {parts = {{1, 'unsigned'}}})
message:create_index('subject_sequence', {parts = {{4, 'string'}, {1, 'unsigned'}}})
box.schema.user.grant('guest', 'read', 'space', 'message')

local file = fio.open(os.getenv('BARE_ROWS'), {'O_RDONLY'})
for _, row in ipairs((msgpack.decode(file:read()))) do
    message:insert(row)
end
file:close()
box.cfg{listen = os.getenv('BARE_LISTEN')}
