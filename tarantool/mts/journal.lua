-- The read side of the journal (rule 29): which rows the bucket does not hold yet. Messages are found by their
-- sequence behind a durable cursor; of those before it, and of the spaces beside them, what changed is marked
-- (`journal_marks`). A step reads messages and side rows in one go, up to everything given so far, and answers when all
-- of that is durable: what is side by side in it belongs together.
local clock = require('mts.clock')
local commit = require('mts.commit')
local errors = require('mts.errors')
local extent = require('mts.extent')
local marks = require('mts.journal_marks')
local schema = require('mts.schema')
local txn = require('mts.txn')

local F, P = schema.message, schema.partition
local M = {}

local KEY = 'journal'
local STEP_BYTES = 4 * 1024 * 1024

local function stored()
    local row = box.space.state:get(KEY)
    return row and row[schema.state.value] or {number = 0, upto = 0, at = 0, checkpoint_at = 0}
end

function M.number()
    return stored().number
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
    while at.space <= #marks.watches and not is_full(step) do
        local watch = marks.watches[at.space]
        local key = schema.present(at.key)
        local rows = watch.space.index.primary:select(key or {}, {iterator = key and 'GT' or 'ALL', limit = step.left})
        for _, row in ipairs(rows) do
            if watch.wants(row) then
                add_row(step, watch, row)
            end
            at.key = marks.key_of(watch, row)
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

local function add_marked(step, watch, key)
    local row = watch.space:get(key)
    if row then
        add_row(step, watch, row)
    else
        table.insert(step.side, {watch.name, box.NULL, key})
        step.left = step.left - 1
    end
end

local function read_marks(step)
    local stamp = step.position.stamp
    while stamp < marks.last and not is_full(step) do
        stamp = stamp + 1
        local watch, key, has_changed = marks.at(stamp)
        if watch then
            add_marked(step, watch, key)
        elseif key then
            add_message(step, key, has_changed)
        end
    end
    step.position.stamp = stamp
end

local function first_position(known, checkpoint)
    local walked = marks.is_walked and not checkpoint
    return {boot = marks.boot, from = known.upto, stamp = marks.acked, number = known.number, checkpoint = not walked,
        walk = {space = walked and #marks.watches + 1 or 1}}
end

-- The next rows behind a position (nil: behind the cursor), up to `limit`. `complete`: with this step everything is
-- read, and what was read since the first step is one consistent state. `holes` are those of `removed` that only this
-- tells of. `checkpoint` asks for all side rows.
function M.read(position, limit, checkpoint)
    position = schema.present(position)
    if position and position.boot ~= marks.boot then
        errors.refuse('unavailable', 'the marks of this round are gone (a start, or too many): the next begins anew')
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
        one.complete = not is_full(one) and copy.walk.space > #marks.watches and copy.stamp == marks.last
        marks.was_read(copy.stamp) -- here: what changes while this waits for the disk is not in it
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
    if moved and complete then
        marks.forget(position.boot, position.stamp, position.checkpoint)
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
        waiting = marks.last > marks.acked or not marks.is_walked}
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
