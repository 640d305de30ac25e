-- Runs the numbered migrations that this database has not seen. Each is safe to run again: a crash in the middle
-- of one repeats it from its start.
local log = require('log')

local M = {}

M.STEPS = {
    {version = 1, name = 'initial', module = 'mts.migrations.001_initial'},
    {version = 2, name = 'delivery', module = 'mts.migrations.002_delivery'},
    {version = 3, name = 'retention', module = 'mts.migrations.003_retention'},
    {version = 4, name = 'journal', module = 'mts.migrations.004_journal'},
    {version = 5, name = 'deletion', module = 'mts.migrations.005_deletion'},
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
    for _, step in ipairs(M.STEPS) do
        if step.version > from and (upto == nil or step.version <= upto) then
            require(step.module)()
            box.space.migration:replace{step.version, step.name, os.time()}
            log.info('migration %d (%s) applied', step.version, step.name)
        end
    end
end

return M
