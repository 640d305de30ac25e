-- Which rows point at an object. Nothing is written down for that but their number: an index over names would cost
-- every message memory for what is asked rarely. Rows of a pack stand together, so they are looked for near one of them
-- first, and only then everywhere.
local fiber = require('fiber')
local object = require('mts.object')
local schema = require('mts.schema')

local F, U = schema.message, schema.upload
local M = {}

local CHUNK = 1000

-- Ids of uploads that wait in a pack, by its name: those in `stored` are never due, or due at once.
local function add_stored(found, name, key, iterator)
    for _, row in box.space.upload.index.due:pairs(key, {iterator = iterator}) do
        if row[U.state] == 'stored' and row[U.byte_from] ~= nil and row[U.object_name] == name then
            table.insert(found, row[U.id])
        end
    end
end

function M.stored_uploads(name)
    local found = {}
    add_stored(found, name, {0}, 'EQ')
    add_stored(found, name, {schema.NEVER}, 'GE')
    return found
end

local function walk_near(name, near, iterator, keys)
    for _, row in box.space.message.index.primary:pairs({near}, {iterator = iterator}) do
        if row[F.object_name] ~= name then
            return
        end
        table.insert(keys, row[F.sequence])
    end
end

-- Keys of rows that point at an object, as far as they are found; yields. `near`: a sequence around which some stand.
function M.find(name, near)
    local wanted = object.refs(name) - #M.stored_uploads(name)
    local keys = {}
    walk_near(name, near, 'GE', keys)
    walk_near(name, near, 'LT', keys)
    if #keys == wanted then
        return keys
    end
    keys = {}
    local after, seen = 0ULL
    repeat
        seen = 0
        for _, row in box.space.message.index.primary:pairs({after}, {iterator = 'GT'}) do
            after, seen = row[F.sequence], seen + 1
            if row[F.object_name] == name then
                table.insert(keys, after)
            end
            if seen == CHUNK then
                break
            end
        end
        fiber.yield()
    until seen < CHUNK or #keys == wanted
    return keys
end

-- Inside a transaction: the rows with these keys that still point at the object, in the order of their keys, and
-- whether these and the uploads that wait in it are all that do.
function M.check(name, keys)
    local rows = {}
    for _, key in ipairs(keys) do
        local row = box.space.message:get(key)
        if row and row[F.object_name] == name and row[F.unverified] ~= true then
            table.insert(rows, row)
        end
    end
    table.sort(rows, function(one, other) return one[F.sequence] < other[F.sequence] end)
    return rows, #rows + #M.stored_uploads(name) == object.refs(name)
end

return M
