-- Runs the numbered migrations that this database has not seen. Each is safe to run again: a crash in the middle
-- of one repeats it from its start.
local log = require('log')

local M = {}

local STEPS = {
    {version = 1, name = 'initial', module = 'mts.migrations.001_initial'},
}

function M.version()
    local space = box.space.migration
    local last = space and space.index.primary:max()
    return last and last[1] or 0
end

-- `upto` lets tests stop at an older version.
function M.run(upto)
    box.schema.space.create('migration', {if_not_exists = true, format = {
        {'version', 'unsigned'}, {'name', 'string'}, {'applied_at', 'unsigned'}}})
    box.space.migration:create_index('primary', {parts = {{1, 'unsigned'}}, if_not_exists = true})
    local from = M.version()
    for _, step in ipairs(STEPS) do
        if step.version > from and (upto == nil or step.version <= upto) then
            require(step.module)()
            box.space.migration:replace{step.version, step.name, os.time()}
            log.info('migration %d (%s) applied', step.version, step.name)
        end
    end
end

return M
