-- What the journal has still to write of rows beside the messages, and of messages behind its cursor: triggers mark it
-- when it is written, before it is durable, each mark with the next stamp. `journal` reads marks and says up to which
-- stamp all is in the bucket.
--
-- After a start nothing is known to be in the bucket, so every side row is walked once; that walk is a checkpoint.
-- Messages that changed (a pack was written anew without a deleted one) are remembered on disk: their old payload is
-- gone, and the rows that the bucket holds are worth nothing. So are those that went from the middle of a partition (a
-- dead letter that was sent back); of those that went from its head, the head tells.
local commit = require('mts.commit')
local schema = require('mts.schema')
local txn = require('mts.txn')
local uuid = require('uuid')

local F = schema.message
local M = {
    SIDE = {'subject', 'partition', 'producer', 'producer_range', 'route', 'consumers', 'consumer_partition',
        'delivery', 'object', 'purge', 'purge_producer'},
    MOST = 1000000, -- that wait to be written; of more, everything is walked instead
    -- For `journal` to read, and for nobody else to set:
    boot = uuid.str(), -- positions of another one are worth nothing
    watches = {}, -- the spaces beside the messages, in the order in which they are walked
    last = 0, -- stamp
    acked = 0, -- stamp: what is marked up to here is in the bucket
    is_walked = false, -- have all side rows been written since the start?
}

local KEPT_STATE = {ttl = true} -- what of `state` belongs to the stream, and not to this server
local MOST_REMOVED = 100000 -- that wait to be written; of more, the partitions' heads tell nearly all

local entries = {} -- by stamp: {watch, key, id}, of a message {nil, sequence, has changed}; marked again, it moves on
local read = 0 -- stamp
local changed_at = {} -- by sequence: the last stamp of a message that has changed
local removed_waiting = 0
local highest = 0ULL -- sequence of a message that was ever written
local is_muted = false -- while rows come from the journal itself

function M.key_of(watch, row)
    local key = {}
    for place, field in ipairs(watch.fields) do
        key[place] = row[field]
    end
    return key
end

local function id_of(watch, row)
    local fields = watch.fields
    if #fields == 1 then
        return tostring(row[fields[1]])
    elseif #fields == 2 then
        return tostring(row[fields[1]]) .. '\0' .. tostring(row[fields[2]])
    end
    return tostring(row[fields[1]]) .. '\0' .. tostring(row[fields[2]]) .. '\0' .. tostring(row[fields[3]])
end

local function enter_message(sequence, has_changed)
    M.last = M.last + 1
    entries[M.last] = {nil, sequence, has_changed}
    if has_changed then
        changed_at[tostring(sequence)] = M.last
    end
end

local function enter_changes()
    for _, row in box.space.journal_change:pairs() do
        enter_message(row[schema.journal_change.sequence], true)
    end
end

-- Nobody writes the journal, for long: memory is worth more than the marks. Rounds under way begin anew.
local function forget_all()
    M.boot, entries, changed_at, removed_waiting, M.is_walked = uuid.str(), {}, {}, 0, false
    M.acked, read = M.last, M.last
    for _, watch in ipairs(M.watches) do
        watch.marks = {}
    end
    enter_changes()
end

-- What is marked and not read yet needs no second mark.
local function mark(watch, row)
    if M.last - M.acked > M.MOST then
        forget_all()
    end
    local id = id_of(watch, row)
    local at = watch.marks[id]
    if at and at > read then
        return
    end
    if at then
        entries[at] = nil
    end
    M.last = M.last + 1
    entries[M.last] = {watch, M.key_of(watch, row), id}
    watch.marks[id] = M.last
end

local function mark_removed(row)
    if removed_waiting < MOST_REMOVED then
        removed_waiting = removed_waiting + 1
        enter_message(row[F.sequence], false)
    end
end

-- In the transaction that changes it.
local function mark_changed(row)
    box.space.journal_change:replace{row[F.sequence]}
    enter_message(row[F.sequence], true)
end

local function was_head(row)
    local before = box.space.message.index.subject_partition:select({row[F.subject], row[F.partition],
        row[F.sequence]}, {iterator = 'LT', limit = 1})[1]
    return before == nil or before[F.subject] ~= row[F.subject] or before[F.partition] ~= row[F.partition]
end

-- A new message stands behind all others; any other that is written stood there before, or is a part of one that did.
local function on_message(old, new)
    local is_new = new ~= nil and new[F.sequence] > highest
    if is_new then
        highest = 0ULL + new[F.sequence]
    end
    if is_muted or is_new then
        return
    elseif new == nil and was_head(old) then
        mark_removed(old)
    else
        mark_changed(new or old)
    end
end

local function add_watch(name, wants)
    local space = box.space[name]
    local watch = {name = name, space = space, fields = {}, marks = {}, wants = wants}
    for _, part in ipairs(space.index.primary.parts) do
        table.insert(watch.fields, part.fieldno)
    end
    table.insert(M.watches, watch)
    space:on_replace(function(old, new)
        if not is_muted and watch.wants(new or old) then
            mark(watch, new or old)
        end
    end)
end

local function always()
    return true
end

local function is_kept_state(row)
    return KEPT_STATE[row[schema.state.key]] == true
end

function M.start()
    if #M.watches > 0 then
        return
    end
    for _, name in ipairs(M.SIDE) do
        add_watch(name, always)
    end
    add_watch('state', is_kept_state)
    highest = commit.given()
    box.space.message:on_replace(on_message)
    enter_changes()
end

-- Run `fn`, which must not yield: what it writes is in the bucket already.
function M.unmarked(fn)
    is_muted = true
    local ok, result = pcall(fn)
    is_muted = false
    if not ok then
        error(result, 0)
    end
    return result
end

-- Changes that are in the bucket now, but for those that were made again since.
local function forget_changes(upto)
    local written = {}
    for stamp = M.acked + 1, upto do
        local entry = entries[stamp]
        if entry and entry[3] == true then
            table.insert(written, entry[2])
        end
    end
    for first = 1, #written, schema.PER_TRANSACTION do
        txn.run(function()
            for place = first, math.min(first + schema.PER_TRANSACTION - 1, #written) do
                local id = tostring(written[place])
                if changed_at[id] ~= nil and changed_at[id] <= upto then
                    box.space.journal_change:delete{written[place]}
                    changed_at[id] = nil
                end
            end
        end)
    end
end

local function forget_marks(upto)
    for stamp = M.acked + 1, upto do
        local entry = entries[stamp]
        if entry then
            entries[stamp] = nil
            if entry[1] == nil then
                removed_waiting = removed_waiting - (entry[3] and 0 or 1)
            elseif entry[1].marks[entry[3]] == stamp then
                entry[1].marks[entry[3]] = nil
            end
        end
    end
    M.acked = math.max(M.acked, upto)
end

-- The watch and key of what was marked with a stamp; of a message no watch, its sequence, and whether it has changed.
-- Nothing when it was marked again since.
function M.at(stamp)
    local entry = entries[stamp]
    if entry then
        return unpack(entry, 1, 3)
    end
end

-- What is marked up to this stamp was read: when it changes from now on, it is marked again.
function M.was_read(upto)
    read = math.max(read, upto)
end

-- All up to this stamp is in the bucket; with `is_checkpoint`, so is every side row. While changes are forgotten, the
-- marks may be given up, and then those made since the stamp are gone: everything is to be walked, whatever was read.
function M.forget(boot, upto, is_checkpoint)
    if boot == M.boot then
        forget_changes(upto)
    end
    if boot == M.boot then
        forget_marks(upto)
        M.is_walked = M.is_walked or is_checkpoint
    end
end

return M
