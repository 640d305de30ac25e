-- The first server's Tarantool, with the spaces and indexes of the specification.
box.cfg{listen = os.getenv('LEGACY_LISTEN'), memtx_memory = 64 * 1024 * 1024}
local message = box.schema.space.create('message', {if_not_exists = true})
message:format({{'sequence', 'unsigned'}, {'headers', 'map'}, {'object_name', 'string'}, {'subject', 'string'},
    {'create_at', 'unsigned'}})
message:create_index('primary', {type = 'TREE', parts = {'sequence'}, if_not_exists = true})
message:create_index('subject', {type = 'TREE', parts = {'subject'}, unique = false, if_not_exists = true})
message:create_index('subject_sequence', {type = 'TREE', parts = {'subject', 'sequence'}, if_not_exists = true})
message:create_index('create_at', {type = 'TREE', parts = {'create_at'}, unique = false, if_not_exists = true})
local consumers = box.schema.space.create('consumers', {if_not_exists = true})
consumers:format({{'durable_name', 'string'}, {'subject', 'string'}, {'last_sequence', 'unsigned'}})
consumers:create_index('primary', {type = 'TREE', parts = {'durable_name', 'subject'}, if_not_exists = true})
consumers:create_index('subject', {type = 'TREE', parts = {'subject'}, unique = false, if_not_exists = true})
box.schema.user.create('minitoolstream_connector', {password = 'changeme', if_not_exists = true})
box.schema.user.grant('minitoolstream_connector', 'read,write,execute', 'universe', nil, {if_not_exists = true})
