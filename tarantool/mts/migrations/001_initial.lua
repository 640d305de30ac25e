-- The first schema. The specification's fields come first and in its order; ours stand behind.
local migration = require('mts.migrations.space')

local space, index = migration.create, migration.index

return function()
    box.schema.sequence.create('message', {if_not_exists = true})
    space('message', {
        {'sequence', 'unsigned'}, {'headers', 'map'}, {'object_name', 'string'}, {'subject', 'string'},
        {'create_at', 'unsigned'}, {'partition', 'unsigned'}, {'offset', 'unsigned'}, {'count', 'unsigned'},
        {'size', 'unsigned'}, {'byte_from', 'unsigned', is_nullable = true}, {'sizes', 'array', is_nullable = true},
        {'own', 'array', is_nullable = true}, {'content_type', 'string', is_nullable = true},
        {'sha256', 'string', is_nullable = true}, {'codec', 'string', is_nullable = true},
        {'unverified', 'boolean', is_nullable = true},
    }, {
        index('primary', {{'sequence'}}, {sequence = 'message'}),
        index('subject_sequence', {{'subject'}, {'sequence'}}),
        index('subject_partition', {{'subject'}, {'partition'}, {'sequence'}}),
    })
    space('consumers', {
        {'durable_name', 'string'}, {'subject', 'string'}, {'last_sequence', 'unsigned'},
    }, {
        index('primary', {{'durable_name'}, {'subject'}}),
        index('subject', {{'subject'}}, {unique = false}),
    })
    space('upload', {
        {'id', 'string'}, {'subject', 'string'}, {'incarnation', 'unsigned'}, {'state', 'string'},
        {'size', 'unsigned'}, {'content_type', 'string'}, {'sha256', 'string', is_nullable = true},
        {'headers', 'map'}, {'producer_id', 'string', is_nullable = true},
        {'producer_no', 'unsigned', is_nullable = true}, {'seqno', 'unsigned', is_nullable = true},
        {'epoch', 'unsigned', is_nullable = true}, {'sizes', 'array', is_nullable = true},
        {'created_at', 'unsigned'}, {'expires_at', 'unsigned'}, {'due_at', 'unsigned'}, {'looks', 'unsigned'},
        {'multipart_id', 'string', is_nullable = true}, {'part_size', 'unsigned', is_nullable = true},
        {'parts_seen', 'unsigned'}, {'object_name', 'string', is_nullable = true},
        {'byte_from', 'unsigned', is_nullable = true}, {'sequence', 'unsigned', is_nullable = true},
        {'reason', 'string', is_nullable = true},
    }, {
        index('primary', {{'id'}}),
        index('due', {{'due_at'}, {'id'}}),
    })
    box.schema.sequence.create('incarnation', {if_not_exists = true})
    space('subject', {
        {'name', 'string'}, {'incarnation', 'unsigned'}, {'partitions', 'unsigned'}, {'created_at', 'unsigned'},
        {'settings', 'map'},
    }, {index('primary', {{'name'}})})
    space('partition', {
        {'subject', 'string'}, {'partition', 'unsigned'}, {'next_offset', 'unsigned'}, {'messages', 'unsigned'},
        {'bytes', 'unsigned'}, {'unverified', 'unsigned'},
    }, {index('primary', {{'subject'}, {'partition'}})})
    space('object', {{'object_name', 'string'}, {'refs', 'unsigned'}}, {index('primary', {{'object_name'}})})
    space('trash', {
        {'object_name', 'string'}, {'due_at', 'unsigned'}, {'reason', 'string'},
        {'multipart', 'boolean'},
    }, {
        index('primary', {{'object_name'}}),
        index('due', {{'due_at'}, {'object_name'}}),
    })
    box.schema.sequence.create('producer', {if_not_exists = true})
    space('producer', {
        {'subject', 'string'}, {'producer_id', 'string'}, {'no', 'unsigned'}, {'incarnation', 'unsigned'},
        {'epoch', 'unsigned'}, {'last_seqno', 'unsigned', is_nullable = true}, {'floor', 'unsigned'},
        {'ranges', 'unsigned'}, {'used_at', 'unsigned'},
    }, {
        index('primary', {{'subject'}, {'producer_id'}}),
        index('no', {{'no'}}),
    })
    space('producer_range', {
        {'no', 'unsigned'}, {'first_seqno', 'unsigned'}, {'count', 'unsigned'}, {'first_sequence', 'unsigned'},
    }, {index('primary', {{'no'}, {'first_seqno'}})})
    space('producer_upload', {
        {'no', 'unsigned'}, {'seqno', 'unsigned'}, {'upload_id', 'string'},
    }, {index('primary', {{'no'}, {'seqno'}})})
    space('idempotency', {
        {'incarnation', 'unsigned'}, {'key', 'string'}, {'digest', 'string'}, {'sequence', 'unsigned'},
        {'at', 'unsigned'},
    }, {
        index('primary', {{'incarnation'}, {'key'}}),
        index('order', {{'incarnation'}, {'sequence'}}, {unique = false}),
        index('at', {{'at'}}, {unique = false}),
    })
    space('rejected_event', {
        {'id', 'unsigned'}, {'at', 'unsigned'}, {'object_name', 'string'}, {'reason', 'string'},
    }, {index('primary', {{'id'}}, {sequence = true})})
    space('state', {{'key', 'string'}, {'value', 'any'}}, {index('primary', {{'key'}})})
end
