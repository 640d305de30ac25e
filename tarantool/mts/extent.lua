-- An extent is a row of `count` messages, keyed by its last sequence: what stands where in it.
local schema = require('mts.schema')

local F = schema.message
local M = {}

-- The sequence of its first message.
function M.first(row)
    return row[F.sequence] - row[F.count] + 1
end

local EMPTY = {}

-- A function that cuts messages out of an extent, in order: each `from` behind the last. It goes over sizes and own
-- headers once, however many pieces are cut.
function M.cutter(row)
    local sizes, own, total = row[F.sizes], schema.present(row[F.own]) or EMPTY, row[F.count]
    local at, byte_from, own_at = 0, row[F.byte_from], 1
    return function(from, count)
        if from == 0 and count == total then
            return row
        end
        for i = at + 1, from do
            byte_from = byte_from + sizes[i] + schema.FRAME_PREFIX
        end
        local start, size, part, own_part = byte_from, 0, {}, {}
        for i = from + 1, from + count do
            size = size + sizes[i]
            table.insert(part, sizes[i])
        end
        at, byte_from = from + count, start + size + count * schema.FRAME_PREFIX
        while own[own_at] and own[own_at][1] < at do
            local entry = own[own_at]
            if entry[1] >= from then
                table.insert(own_part, {entry[1] - from, entry[2], entry[3]})
            end
            own_at = own_at + 1
        end
        local behind = total - at
        return {row[F.sequence] - behind, row[F.headers], row[F.object_name], row[F.subject], row[F.create_at],
            row[F.partition], row[F.offset] - behind, count, size, start, count > 1 and part or box.NULL,
            #own_part > 0 and own_part or box.NULL, row[F.content_type], row[F.sha256], row[F.codec],
            row[F.unverified]}
    end
end

-- `count` messages of an extent from index `from` on, as a row of their own.
function M.slice(row, from, count)
    if from == 0 and count == row[F.count] then
        return row
    end
    return M.cutter(row)(from, count)
end

-- The index of the message whose frame begins at this byte of the object, or nil.
function M.index_at(row, byte)
    local at, sizes = row[F.byte_from], schema.present(row[F.sizes]) or {row[F.size]}
    for index = 0, tonumber(row[F.count]) - 1 do
        if at >= byte then
            return at == byte and index or nil
        end
        at = at + sizes[index + 1] + schema.FRAME_PREFIX
    end
    return nil
end

-- Bytes of the object that a row needs: the first, and how many.
function M.span(row)
    if row[F.byte_from] == nil then
        return 0, row[F.size]
    end
    return row[F.byte_from], row[F.size] + row[F.count] * schema.FRAME_PREFIX
end

-- Headers and content type of a row of one message.
function M.headers(row)
    local own = schema.present(row[F.own])
    local entry = own and own[1] or {}
    return schema.present(entry[2]) or row[F.headers],
        schema.present(entry[3]) or schema.present(row[F.content_type])
end

return M
