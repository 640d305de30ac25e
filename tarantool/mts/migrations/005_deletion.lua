-- Deletions that must be finished, the objects they still have to clear of what was deleted, and rows whose payload is
-- missing.
local space = require('mts.migrations.space')

return function()
    space.create('deletion', {
        {'id', 'string'}, {'kind', 'string'}, {'subject', 'string'}, {'at', 'unsigned'}, {'who', 'string'},
        {'reason', 'string'}, {'sequence', 'unsigned', is_nullable = true}, {'upto', 'unsigned', is_nullable = true},
        {'messages', 'unsigned'}, {'bytes', 'unsigned'}, {'sequences', 'array'}, {'removed', 'boolean'},
        {'done_at', 'unsigned', is_nullable = true},
    }, {
        space.index('primary', {{'id'}}),
        space.index('done', {{'done_at', is_nullable = true}, {'id'}}),
    })
    space.create('erasure', {
        {'object_name', 'string'}, {'deletion_id', 'string'}, {'near', 'unsigned'},
        {'target', 'string', is_nullable = true},
    }, {
        space.index('primary', {{'object_name'}, {'deletion_id'}}),
        space.index('deletion', {{'deletion_id'}, {'object_name'}}),
    })
    space.create('missing', {
        {'last', 'unsigned'}, {'first', 'unsigned'}, {'at', 'unsigned'}, {'reason', 'string'},
    }, {space.index('primary', {{'last'}})})
end
