-- What migrations are made of. Every function is safe to run again.
local M = {}

function M.index(name, parts, options)
    options = options or {}
    options.parts = parts
    return {name = name, options = options}
end

-- A space and its indexes in one write: an index and the sequence attached to it are two rows, and a crash between
-- them would leave an index that looks complete.
function M.create(name, format, indexes)
    box.atomic(function()
        local created = box.schema.space.create(name, {if_not_exists = true, format = format})
        for _, index in ipairs(indexes) do
            index.options.if_not_exists = true
            created:create_index(index.name, index.options)
        end
    end)
end

-- Append nullable fields that the format does not have yet.
function M.add_fields(name, fields)
    local format = box.space[name]:format()
    local known = {}
    for _, field in ipairs(format) do
        known[field.name] = true
    end
    for _, field in ipairs(fields) do
        if not known[field[1]] then
            table.insert(format, {name = field[1], type = field[2], is_nullable = true})
        end
    end
    box.space[name]:format(format)
end

return M
