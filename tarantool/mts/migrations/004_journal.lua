-- Messages that changed behind the journal's cursor, and that the bucket does not know as they are now.
local space = require('mts.migrations.space')

return function()
    space.create('journal_change', {{'sequence', 'unsigned'}}, {space.index('primary', {{'sequence'}})})
end
