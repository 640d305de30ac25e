-- Payloads outlive their messages by a grace: the trash knows before when an object must not go.
local space = require('mts.migrations.space')

return function()
    space.add_fields('trash', {{'not_before', 'unsigned'}})
end
