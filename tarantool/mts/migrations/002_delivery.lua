-- Durables with modes, sessions and leases; partitions that split; transactions; subjects that are deleted in the
-- background. Fields are only added, behind the old ones and nullable, so rows of the first schema stay valid.
local space = require('mts.migrations.space')

return function()
    space.add_fields('subject', {{'first_sequence', 'unsigned'}, {'pinned', 'unsigned'}})
    space.add_fields('partition', {{'inactive', 'boolean'}, {'parent', 'unsigned'}, {'hash_from', 'unsigned'},
        {'hash_to', 'unsigned'}, {'split_at', 'unsigned'}})
    space.add_fields('upload', {{'group', 'string'}, {'hash', 'unsigned'}, {'codec', 'string'},
        {'transaction_id', 'string'}, {'reserved', 'boolean'}, {'own', 'array'}})
    space.add_fields('producer', {{'headers', 'map'}, {'transaction_id', 'string'}})
    space.add_fields('consumers', {{'incarnation', 'unsigned'}, {'mode', 'string'}, {'settings', 'map'},
        {'created_at', 'unsigned'}, {'next_sequence', 'unsigned'}, {'outstanding', 'unsigned'},
        {'fence', 'unsigned'}})
    box.space.consumers.index.subject:alter{parts = {{'subject'}, {'durable_name'}}, unique = true}
    space.create('route', {
        {'incarnation', 'unsigned'}, {'producer_id', 'string'}, {'group', 'string'}, {'partition', 'unsigned'},
        {'used_at', 'unsigned'},
    }, {
        space.index('primary', {{'incarnation'}, {'producer_id'}, {'group'}}),
        space.index('used', {{'used_at'}}, {unique = false}),
    })
    space.create('consumer_partition', {
        {'durable_name', 'string'}, {'subject', 'string'}, {'partition', 'unsigned'}, {'acked', 'unsigned'},
        {'session_id', 'string', is_nullable = true}, {'fence', 'unsigned'},
    }, {space.index('primary', {{'durable_name'}, {'subject'}, {'partition'}})})
    space.create('session', {
        {'durable_name', 'string'}, {'subject', 'string'}, {'session_id', 'string'}, {'epoch', 'unsigned'},
        {'ttl', 'unsigned'},
    }, {space.index('primary', {{'durable_name'}, {'subject'}, {'session_id'}})})
    space.create('delivery', {
        {'durable_name', 'string'}, {'subject', 'string'}, {'last', 'unsigned'}, {'first', 'unsigned'},
        {'count', 'unsigned'}, {'deliveries', 'unsigned'}, {'lease_id', 'string', is_nullable = true},
        {'granted_at', 'unsigned'}, {'due_at', 'unsigned'}, {'last_try_at', 'unsigned', is_nullable = true},
    }, {
        space.index('primary', {{'durable_name'}, {'subject'}, {'last'}}),
        space.index('due', {{'durable_name'}, {'subject'}, {'due_at'}, {'last'}}),
        space.index('lease', {{'lease_id'}, {'last'}}, {unique = false}),
        space.index('last_try', {{'last_try_at'}, {'durable_name'}, {'subject'}, {'last'}}),
    })
    space.create('transaction', {
        {'id', 'string'}, {'state', 'string'}, {'created_at', 'unsigned'}, {'until_at', 'unsigned'},
        {'due_at', 'unsigned'}, {'rows', 'unsigned'}, {'outcome', 'any', is_nullable = true},
        {'reason', 'string', is_nullable = true}, {'receipts_until', 'unsigned', is_nullable = true},
    }, {
        space.index('primary', {{'id'}}),
        space.index('due', {{'due_at'}, {'id'}}),
        space.index('receipts', {{'receipts_until', is_nullable = true}, {'id'}}),
    })
    space.create('transaction_item', {
        {'transaction_id', 'string'}, {'no', 'unsigned'}, {'kind', 'string'}, {'data', 'any'},
        {'key', 'string', is_nullable = true},
    }, {
        space.index('primary', {{'transaction_id'}, {'no'}}),
        space.index('key', {{'transaction_id'}, {'key', is_nullable = true}}),
    })
    space.create('purge', {
        {'incarnation', 'unsigned'}, {'subject', 'string'}, {'upto', 'unsigned'}, {'at', 'unsigned'},
        {'cursor', 'string', is_nullable = true},
    }, {space.index('primary', {{'incarnation'}})})
    space.create('purge_producer', {{'no', 'unsigned'}}, {space.index('primary', {{'no'}})})
    space.create('reservation', {
        {'incarnation', 'unsigned'}, {'messages', 'unsigned'}, {'bytes', 'unsigned'},
    }, {space.index('primary', {{'incarnation'}})})
end
