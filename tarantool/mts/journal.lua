-- The read side of the journal (rule 29): which rows the bucket does not hold yet. Messages are found by their
-- sequence behind a durable cursor; of those before it, and of the spaces beside them, what changed is marked by
-- triggers when it is written, before it is durable. A step reads messages and side rows in one go, up to everything
-- given so far, and answers when all of that is durable: what is side by side in it belongs together.
--
-- After a start nothing is known to be in the bucket, so every side row is walked once; that walk is a checkpoint.
-- Messages that changed (a pack was written anew without a deleted one) are remembered on disk: their old payload is
-- gone, and the rows that the bucket holds are worth nothing. So are those that went from the middle of a partition (a
-- dead letter that was sent back); of those that went from its head, the head tells.
local clock = require('mts.clock')
local commit = require('mts.commit')
local errors = require('mts.errors')
local extent = require('mts.extent')
local schema = require('mts.schema')
local txn = require('mts.txn')
local uuid = require('uuid')

local F, P = schema.message, schema.partition
local M = {}

M.SIDE = {'subject', 'partition', 'producer', 'producer_range', 'route', 'consumers', 'consumer_partition', 'delivery',
    'object', 'purge', 'purge_producer'}

local KEPT_STATE = {ttl = true} -- what of `state` belongs to the stream, and not to this server
local KEY = 'journal'
local STEP_BYTES = 4 * 1024 * 1024
M.MOST_MARKS = 1000000 -- that wait to be written; of more, everything is walked instead
local MOST_REMOVED = 100000 -- that wait to be written; of more, the partitions' heads tell nearly all

local boot = uuid.str()
local entries = {} -- by stamp: {watch, key}, of a message {nil, sequence, has changed}; marked again, it has moved on
local last_stamp, read_stamp, acked_stamp = 0, 0, 0
local is_walked = false -- have all side rows been written since the start?
local changed_at = {} -- by sequence: the last stamp of a message that has changed
local removed_waiting = 0
local highest = 0ULL -- sequence of a message that was ever written
local is_muted = false -- while rows come from the journal itself
local watches = {}

local function stored()
    local row = box.space.state:get(KEY)
    return row and row[schema.state.value] or {number = 0, upto = 0, at = 0, checkpoint_at = 0}
end

function M.number()
    return stored().number
end

local function key_of(watch, row)
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
    last_stamp = last_stamp + 1
    entries[last_stamp] = {nil, sequence, has_changed}
    if has_changed then
        changed_at[tostring(sequence)] = last_stamp
    end
end

local function enter_changes()
    for _, row in box.space.journal_change:pairs() do
        enter_message(row[schema.journal_change.sequence], true)
    end
end

-- Nobody writes the journal, for long: memory is worth more than the marks. Rounds under way begin anew.
local function forget_all()
    boot, entries, changed_at, removed_waiting, is_walked = uuid.str(), {}, {}, 0, false
    acked_stamp, read_stamp = last_stamp, last_stamp
    for _, watch in ipairs(watches) do
        watch.marks = {}
    end
    enter_changes()
end

-- What is marked and not read yet needs no second mark.
local function mark(watch, row)
    if last_stamp - acked_stamp > M.MOST_MARKS then
        forget_all()
    end
    local id = id_of(watch, row)
    local at = watch.marks[id]
    if at and at > read_stamp then
        return
    end
    if at then
        entries[at] = nil
    end
    last_stamp = last_stamp + 1
    entries[last_stamp] = {watch, key_of(watch, row), id}
    watch.marks[id] = last_stamp
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
    table.insert(watches, watch)
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
    if #watches > 0 then
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

-- The first sequence that a partition still has: what lies below was removed.
local function head_of(subject, partition)
    local row = box.space.message.index.subject_partition:select({subject, partition}, {iterator = 'EQ', limit = 1})[1]
    return row and extent.first(row) or commit.given() + 1
end

local function add_row(step, watch, row)
    local head = watch.name == 'partition' and head_of(row[P.subject], row[P.partition]) or box.NULL
    table.insert(step.side, {watch.name, row, box.NULL, head})
    step.left, step.bytes = step.left - 1, step.bytes + row:bsize()
end

local function is_full(step)
    return step.left <= 0 or step.bytes >= STEP_BYTES
end

local function read_messages(step)
    local from = step.position.from
    for _, row in box.space.message.index.primary:pairs({from}, {iterator = 'GT'}) do
        if is_full(step) then
            return
        end
        table.insert(step.rows, row)
        step.position.from = row[F.sequence]
        step.left, step.bytes = step.left - 1, step.bytes + row:bsize()
    end
    step.position.from = commit.given()
end

local function walk(step)
    local at = step.position.walk
    while at.space <= #watches and not is_full(step) do
        local watch = watches[at.space]
        local key = schema.present(at.key)
        local rows = watch.space.index.primary:select(key or {}, {iterator = key and 'GT' or 'ALL', limit = step.left})
        for _, row in ipairs(rows) do
            if watch.wants(row) then
                add_row(step, watch, row)
            end
            at.key = key_of(watch, row)
            if is_full(step) then
                break
            end
        end
        if #rows == 0 then
            at.space, at.key = at.space + 1, nil
        end
    end
end

-- One that was removed and is there had its key written anew: then it has changed, and is told as such.
local function add_message(step, sequence, has_changed)
    local row = box.space.message:get(sequence)
    if row and has_changed then
        table.insert(step.rows, row)
        step.bytes = step.bytes + row:bsize()
    elseif row == nil then
        table.insert(step.removed, sequence)
        if has_changed then
            table.insert(step.holes, sequence)
        end
    end
    step.left = step.left - 1
end

local function read_marks(step)
    local stamp = step.position.stamp
    while stamp < last_stamp and not is_full(step) do
        stamp = stamp + 1
        local entry = entries[stamp]
        if entry and entry[1] == nil then
            add_message(step, entry[2], entry[3])
        elseif entry then
            local row = entry[1].space:get(entry[2])
            if row then
                add_row(step, entry[1], row)
            else
                table.insert(step.side, {entry[1].name, box.NULL, entry[2]})
                step.left = step.left - 1
            end
        end
    end
    step.position.stamp = stamp
end

local function first_position(known, checkpoint)
    local walked = is_walked and not checkpoint
    return {boot = boot, from = known.upto, stamp = acked_stamp, walk = {space = walked and #watches + 1 or 1},
        number = known.number, checkpoint = not walked}
end

-- The next rows behind a position (nil: behind the cursor), up to `limit`. `complete`: with this step everything is
-- read, and what was read since the first step is one consistent state. `holes` are those of `removed` that only this
-- tells of. `checkpoint` asks for all side rows.
function M.read(position, limit, checkpoint)
    position = schema.present(position)
    if position and position.boot ~= boot then
        errors.refuse('unavailable', 'Tarantool was started again in the middle; the next round begins anew')
    end
    local step = txn.run(function()
        local known = stored()
        local at = position or first_position(known, checkpoint)
        local copy = {boot = at.boot, from = at.from, stamp = at.stamp, number = at.number,
            checkpoint = at.checkpoint, walk = {space = at.walk.space, key = at.walk.key}}
        local one = {rows = schema.array{}, side = schema.array{}, removed = schema.array{}, holes = schema.array{},
            position = copy, left = limit, bytes = 0}
        read_messages(one)
        if not is_full(one) then
            walk(one)
            read_marks(one)
        end
        one.complete = not is_full(one) and copy.walk.space > #watches and copy.stamp == last_stamp
        read_stamp = math.max(read_stamp, copy.stamp) -- here: what changes while this waits for the disk is not in it
        return one
    end)
    return {rows = step.rows, side = step.side, removed = step.removed, holes = step.holes, position = step.position,
        complete = step.complete}
end

-- The number of the next segment, durable before it is written; null when another writer took one since `seen`: what
-- was read must then be read again, or older rows would stand behind newer ones.
function M.plan(seen)
    return txn.run(function()
        local known = stored()
        if known.number ~= seen then
            return box.NULL
        end
        known.number = known.number + 1
        box.space.state:replace{KEY, known}
        return known.number
    end)
end

-- Changes that are in the bucket now, but for those that were made again since.
local function forget_changes(upto)
    local written = {}
    for stamp = acked_stamp + 1, upto do
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
    for stamp = acked_stamp + 1, upto do
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
    acked_stamp = math.max(acked_stamp, upto)
end

-- Segment `number` is in the bucket, with everything up to this position; `complete` when it ends a round.
function M.ack(number, position, complete)
    local moved = txn.run(function()
        local known = stored()
        if known.number ~= number then
            return false
        end
        if position.from > known.upto then
            known.upto = position.from
        end
        if complete then
            known.at = clock.milliseconds()
            known.checkpoint_at = position.checkpoint and known.at or known.checkpoint_at
        end
        box.space.state:replace{KEY, known}
        return true
    end)
    if moved and complete and position.boot == boot then
        forget_changes(position.stamp)
        forget_marks(position.stamp)
        is_walked = is_walked or position.checkpoint
    end
    return moved
end

-- How far the bucket is behind: sequences, and the age in seconds of the first message that it does not hold.
function M.lag()
    local known, top = stored(), commit.watermark()
    local first = box.space.message.index.primary:select({known.upto}, {iterator = 'GT', limit = 1})[1]
    local behind = first and known.upto < top and tonumber(top - known.upto) or 0
    return {number = known.number, upto = known.upto, at = known.at, checkpoint_at = known.checkpoint_at,
        behind = behind, seconds = first and math.max(clock.seconds() - first[F.create_at], 0) or 0,
        waiting = last_stamp > acked_stamp or not is_walked}
end

-- Which of these ranges {{from, upto}, ...} of sequences (from exclusive) still hold a message.
function M.living(ranges)
    local living = schema.array{}
    for place, range in ipairs(ranges) do
        local row = box.space.message.index.primary:select({range[1]}, {iterator = 'GT', limit = 1})[1]
        living[place] = row ~= nil and extent.first(row) <= range[2]
    end
    return living
end

-- Sequence, object and mark `unverified` of rows behind a sequence: to compare with what the bucket holds.
function M.objects(after, limit)
    local found = schema.array{}
    for _, row in box.space.message.index.primary:pairs({after}, {iterator = 'GT'}) do
        if #found >= limit then
            break
        end
        table.insert(found, {row[F.sequence], row[F.object_name], row[F.unverified] == true})
    end
    return found
end

return M
