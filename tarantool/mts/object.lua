-- Payload objects: who points at them, and the trash that everything deleted from the bucket goes through.
-- A plain payload `m/...` has one row and no entry in `object`; a pack always has one.
local clock = require('mts.clock')
local schema = require('mts.schema')
local txn = require('mts.txn')

local F, T = schema.object, schema.trash
local M = {}

function M.payload_name(subject, incarnation, upload_id)
    return ('m/%s/%s/%s'):format(subject, (tostring(incarnation):gsub('[UL]+$', '')), upload_id)
end

function M.in_trash(name)
    return box.space.trash:get(name) ~= nil
end

-- Inside a transaction that found no row and no open or stored upload for it. `multipart`: parts may be there too.
-- What is there already becomes due again: it was seen in the bucket after a try to delete it.
function M.discard(name, reason, multipart)
    box.space.trash:replace{name, clock.seconds(), reason, multipart or false}
end

-- Record a pack with the rows that point at it; one that nothing points at is discarded.
function M.create(name, refs)
    box.space.object:insert{name, refs}
    if refs == 0 then
        M.discard(name, 'unused_pack')
    end
end

-- One row less points at the object.
function M.release(name, reason)
    local row = box.space.object:get(name)
    if row == nil then
        M.discard(name, reason)
        return
    end
    if row[F.refs] > 0 then
        row = box.space.object:update(name, {{'-', F.refs, 1}})
    end
    if row[F.refs] == 0 then
        M.discard(name, reason)
    end
end

-- Objects to delete from the bucket now.
function M.trash_due(limit)
    local now = clock.seconds()
    return txn.run(function()
        local due = {}
        for _, row in box.space.trash.index.due:pairs() do
            if row[T.due_at] > now or #due >= limit then
                break
            end
            table.insert(due, {row[T.object_name], row[T.multipart]})
        end
        return due
    end)
end

-- The store confirmed that these are gone.
function M.trash_done(names)
    return txn.run(function()
        for _, name in ipairs(names) do
            box.space.trash:delete(name)
            box.space.object:delete(name)
        end
        return #names
    end)
end

-- The store did not confirm; try again later.
function M.trash_postpone(names, seconds)
    return txn.run(function()
        for _, name in ipairs(names) do
            box.space.trash:update(name, {{'=', T.due_at, clock.seconds() + seconds}})
        end
        return #names
    end)
end

local PACKS = '_mts/packs/'

local function stored_cursor()
    local row = box.space.state:get('packs_cursor')
    return row and row[schema.state.value] or ''
end

-- Packs from here on may still be committed.
local function first_young(grace)
    return PACKS .. clock.id_start(clock.milliseconds() - grace * 1000)
end

-- Where the walk over the packs goes on. A clock that was set back makes it go back too: packs named since then
-- stand before the old place.
function M.packs_cursor(grace)
    local cursor, young = stored_cursor(), first_young(grace)
    return cursor > young and young or cursor
end

local function is_pack(name)
    return name:match('^_mts/packs/%x+%-%x+%-7%x+%-%x+%-%x+$') ~= nil and #name == #PACKS + 36
end

-- The reconciler saw these objects, in key order after `from`. Packs older than the grace that nobody committed go
-- to the trash, and the cursor moves behind them; what is not ours is passed over. A cursor moved by someone else
-- meanwhile makes this do nothing.
function M.packs_settle(from, names, grace)
    return txn.run(function()
        local settled, discarded, cursor = 0, 0, from
        local young, cursor_now = first_young(grace), stored_cursor()
        if cursor_now ~= from and cursor_now <= young then
            return {settled = settled, discarded = discarded}
        end
        for _, name in ipairs(names) do
            if name >= young then
                break
            end
            if is_pack(name) and box.space.object:get(name) == nil then
                M.discard(name, 'uncommitted_pack')
                discarded = discarded + 1
            end
            settled, cursor = settled + 1, name
        end
        if cursor ~= from then
            box.space.state:replace{'packs_cursor', cursor}
        end
        return {settled = settled, discarded = discarded}
    end)
end

return M
