-- Payload objects: who points at them, and the trash that everything deleted from the bucket goes through.
-- A plain payload `m/...` has one row and no entry in `object`; a pack always has one.
local clock = require('mts.clock')
local errors = require('mts.errors')
local recovery = require('mts.recovery')
local schema = require('mts.schema')
local txn = require('mts.txn')

local F, T = schema.object, schema.trash
local M = {MOVED = 'rewritten'}

local GRACE = 3600 -- seconds, until a host says otherwise
local LONGEST_GRACE = 40 * 24 * 3600

function M.payload_name(subject, incarnation, upload_id)
    return 'm/' .. subject .. '/' .. tostring(incarnation):match('^%d+') .. '/' .. upload_id
end

-- The upload whose payload has this name; nil for other names.
function M.upload_id(name)
    return name:match('^m/[^/]+/%d+/([^/]+)$')
end

function M.in_trash(name)
    return box.space.trash:get(name) ~= nil
end

-- Seconds by which a payload outlives its last message (rule 25): whoever was given a URL may use it to its end, and a
-- backup may still point at it.
function M.grace()
    local row = box.space.state:get('trash_grace')
    return row and row[schema.state.value] or GRACE
end

function M.set_grace(seconds)
    return txn.run(function()
        if M.grace() ~= seconds then
            box.space.state:replace{'trash_grace', seconds}
        end
        return seconds
    end)
end

-- Inside a transaction that found no row and no open or stored upload for it. `multipart`: parts may be there too.
-- It is due after `grace` seconds, at once unless it was ever visible. What is there already becomes due again (it was
-- seen in the bucket after a try to delete it), but not before its own grace is over.
function M.discard(name, reason, multipart, grace)
    local now, row = clock.seconds(), box.space.trash:get(name)
    local not_before = row and schema.present(row[T.not_before])
    if grace and grace > 0 and (not_before == nil or not_before < now + grace) then
        not_before = now + grace
    end
    local due_at = not_before and not_before > now and not_before or now
    box.space.trash:replace{name, due_at, reason, multipart or (row ~= nil and row[T.multipart]),
        not_before or box.NULL}
end

-- The same for what the law wants gone: due now, whatever else may be kept for a while. `after`: seconds in which the
-- caller deletes it himself, when he has seen to something before.
function M.discard_at_once(name, reason, multipart, after)
    local due_at = clock.seconds() + (after or 0)
    box.space.trash:replace{name, due_at, reason, multipart or false, after and due_at or box.NULL}
end

-- Record a pack with the rows that point at it; one that nothing points at is discarded.
function M.create(name, refs)
    box.space.object:insert{name, refs}
    if refs == 0 then
        M.discard(name, 'unused_pack')
    end
end

-- One row more points at the object; inside the transaction that read the live row it is taken from. The second
-- reference to a plain payload makes its entry.
function M.retain(name)
    local row = box.space.object:get(name)
    if (row == nil and M.in_trash(name)) or (row and row[F.refs] == 0) then
        errors.refuse('payload_gone', 'the payload of this message was deleted', {object_name = name})
    end
    if row == nil then
        box.space.object:insert{name, 2}
    else
        box.space.object:update(name, {{'+', F.refs, 1}})
    end
end

-- Do rows point at it that are counted? A plain payload with one row has no entry, and is not known here.
function M.is_referred(name)
    local row = box.space.object:get(name)
    return row ~= nil and row[F.refs] > 0
end

-- How many rows point at it; one where nothing is written down.
function M.refs(name)
    local row = box.space.object:get(name)
    return row and tonumber(row[F.refs]) or 1
end

-- One row less points at the object, or `rows`. True when that was the last: it goes, after the grace or `grace`
-- seconds.
function M.release(name, reason, grace, rows)
    local row = box.space.object:get(name)
    if row and row[F.refs] > 0 then
        row = box.space.object:update(name, {{'-', F.refs, math.min(rows or 1, tonumber(row[F.refs]))}})
    end
    if row and row[F.refs] > 0 then
        return false
    end
    M.discard(name, reason, false, grace or M.grace())
    return true
end

-- What was discarded while the clock stood far ahead would stay for as long.
local function bring_forward(now)
    local latest = now + math.max(LONGEST_GRACE, M.grace())
    for _ = 1, schema.PER_TRANSACTION do
        local last = box.space.trash.index.due:max()
        if last == nil or last[T.due_at] <= latest then
            return
        end
        local due_at = now + M.grace()
        box.space.trash:replace(schema.changed(last, {[T.due_at] = due_at, [T.not_before] = due_at}))
    end
end

-- Objects to delete from the bucket now: {name, whether parts may be there too, whether its messages were moved}. One
-- whose messages were moved goes when the journal knows where they are now.
function M.trash_due(limit)
    local now = clock.seconds()
    return txn.run(function()
        local due = {}
        if recovery.is_needed() then
            return due
        end
        bring_forward(now)
        for _, row in box.space.trash.index.due:pairs() do
            if row[T.due_at] > now or #due >= limit then
                break
            end
            table.insert(due, {row[T.object_name], row[T.multipart], row[T.reason] == M.MOVED})
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
M.PACKS = PACKS

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

function M.is_pack(name)
    return name:match('^_mts/packs/%x+%-%x+%-7%x+%-%x+%-%x+$') ~= nil and #name == #PACKS + 36
end

-- The reconciler saw these objects, in key order after `from`. Packs older than the grace that nobody committed go
-- to the trash, and the cursor moves behind them; what is not ours is passed over, and so are packs of before a
-- restore, which wait for the operator. A cursor moved by someone else meanwhile makes this do nothing; one that the
-- clock, set back, left ahead is taken back to `from`, or packs named since then would be passed over.
function M.packs_settle(from, names, grace)
    return txn.run(function()
        local settled, discarded, cursor = 0, 0, from
        local young, cursor_now = first_young(grace), stored_cursor()
        if not recovery.may_delete_orphans() then
            return {settled = settled, discarded = discarded}
        end
        local held = recovery.hold_before()
        local judged = held and PACKS .. clock.id_start(held) or ''
        if cursor_now ~= from and cursor_now <= young then
            return {settled = settled, discarded = discarded}
        end
        for _, name in ipairs(names) do
            if name >= young then
                break
            end
            if name >= judged and M.is_pack(name) and box.space.object:get(name) == nil then
                M.discard(name, 'uncommitted_pack')
                discarded = discarded + 1
            end
            settled, cursor = settled + 1, name
        end
        if cursor ~= cursor_now then
            box.space.state:replace{'packs_cursor', cursor}
        end
        return {settled = settled, discarded = discarded}
    end)
end

return M
