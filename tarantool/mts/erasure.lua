-- A pack with bytes of deleted messages is written anew without them, under another key; then its rows point there and
-- the old object is deleted at once. In between, nothing is missing: rows switch in one transaction.
local clock = require('mts.clock')
local errors = require('mts.errors')
local extent = require('mts.extent')
local object = require('mts.object')
local object_rows = require('mts.object_rows')
local quarantine = require('mts.quarantine')
local schema = require('mts.schema')
local txn = require('mts.txn')

local E, F, U = schema.erasure, schema.message, schema.upload
local M = {}

local TRIES = 3
local JOURNAL_SECONDS = 60 -- for who rewrites to write the journal, which must tell where the kept messages are now

local function erasures(name)
    return box.space.erasure:select({name}, {iterator = 'EQ'})
end

local function span_of_upload(row)
    local sizes = schema.present(row[U.sizes])
    local count, bytes = sizes and #sizes or 1, 0
    for _, size in ipairs(sizes or {row[U.size]}) do
        bytes = bytes + size
    end
    return row[U.byte_from], bytes + count * schema.FRAME_PREFIX
end

-- What must be kept of an object: {kind, key, first byte, bytes, what its head says of it}; and the keys of rows whose
-- payload is missing, which have nothing to be kept.
local function kept(name, rows)
    local found, missing = schema.array{}, schema.array{}
    for _, row in ipairs(rows) do
        if quarantine.holds(row) then
            table.insert(missing, row[F.sequence])
        else
            local first, bytes = extent.span(row)
            table.insert(found, {'row', row[F.sequence], first, bytes, {subject = row[F.subject],
                headers = row[F.headers], content_type = row[F.content_type], codec = row[F.codec],
                sizes = schema.present(row[F.sizes]) or {row[F.size]}, own = row[F.own]}})
        end
    end
    for _, id in ipairs(object_rows.stored_uploads(name)) do
        local row = box.space.upload:get(id)
        local first, bytes = span_of_upload(row)
        table.insert(found, {'upload', id, first, bytes, {subject = row[U.subject], headers = row[U.headers],
            content_type = row[U.content_type], codec = row[U.codec],
            sizes = schema.present(row[U.sizes]) or {row[U.size]}, own = row[U.own],
            transaction_id = row[U.transaction_id]}})
    end
    return {kept = found, missing = missing}
end

-- Someone begins to write `target` in the place of an object: what is to be kept of it. An earlier target that never
-- took its place is discarded. Null when nothing is left to be erased here.
function M.plan(name, target)
    for _ = 1, TRIES do
        local first = erasures(name)[1]
        if first == nil then
            return box.NULL
        end
        local keys = object_rows.find(name, first[E.near])
        local plan = txn.run(function()
            local found = erasures(name)
            if #found == 0 or not object.is_referred(name) then
                return {gone = true}
            end
            local rows, is_all = object_rows.check(name, keys)
            if not is_all then
                return nil
            end
            for _, row in ipairs(found) do
                local before = schema.present(row[E.target])
                if before and before ~= target and box.space.object:get(before) == nil then
                    object.discard_at_once(before, 'abandoned_rewrite', true)
                end
                box.space.erasure:update({name, row[E.deletion_id]}, {{'=', E.target, target}})
            end
            return kept(name, rows)
        end)
        if plan ~= nil then
            return plan.gone and box.NULL or plan
        end
    end
    return errors.refuse('inconsistent', 'more or fewer rows point at this object than are counted: '
        .. '`mts fsck --repair` mends that', {object_name = name})
end

local function move(item, name, target)
    local kind, key, first, bytes, new_first = item[1], item[2], item[3], item[4], item[5]
    local space = kind == 'row' and box.space.message or box.space.upload
    local fields = kind == 'row' and F or U
    local row = space:get(key)
    if row == nil or row[fields.object_name] ~= name then
        return false
    end
    if kind == 'upload' and row[U.state] ~= 'stored' then
        return false -- it is a message by now, and that must move
    end
    local now_first, now_bytes
    if kind == 'row' then
        now_first, now_bytes = extent.span(row)
    else
        now_first, now_bytes = span_of_upload(row)
    end
    if now_first ~= first or now_bytes ~= bytes then
        return false
    end
    space:update(key, {{'=', fields.object_name, target}, {'=', fields.byte_from, new_first},
        {'=', fields.sha256, box.NULL}})
    return true
end

local function is_young(target, grace)
    return clock.milliseconds() - clock.id_time(target:match('([^/]+)$')) <= grace * 500
end

local function abandon(target)
    if box.space.object:get(target) == nil then
        object.discard_at_once(target, 'abandoned_rewrite', true)
    end
    return false
end

-- Everything that was to be kept points at the target; false when rows are not as they were.
local function move_all(name, target, moves, missing)
    for _, item in ipairs(moves) do
        if not move(item, name, target) then
            return false
        end
    end
    for _, key in ipairs(missing) do
        local row = box.space.message:get(key)
        if row == nil or row[F.object_name] ~= name or not quarantine.holds(row) then
            return false
        end
    end
    return #moves + #missing == object.refs(name)
end

-- The object `target` is stored: everything that was to be kept points there from now on, at `moves` {kind, key, first
-- byte, bytes, new first byte}, and the old object is deleted at once. False when rows changed since the plan, or
-- another took the matter over: then nothing changes, and the target goes.
function M.switch(name, target, moves, missing, grace)
    return txn.run(function()
        local found, is_mine = erasures(name), true
        for _, row in ipairs(found) do
            is_mine = is_mine and row[E.target] == target
        end
        if #found == 0 or not is_mine or object.in_trash(target) or not is_young(target, grace) then
            return abandon(target)
        end
        local before = box.savepoint()
        if not move_all(name, target, moves, missing) then
            box.rollback_to_savepoint(before)
            return abandon(target)
        end
        if #moves > 0 then
            box.space.object:insert{target, #moves}
        end
        box.space.object:replace{name, 0}
        object.discard_at_once(name, object.MOVED, false, JOURNAL_SECONDS)
        for _, row in ipairs(found) do
            box.space.erasure:update({name, row[E.deletion_id]}, {{'=', E.target, box.NULL}})
        end
        return true
    end)
end

return M
