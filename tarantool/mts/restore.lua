-- The other side of the journal: rows from the bucket back into this server, on top of a snapshot or of nothing. What
-- the journal does not hold (counters, references, ends of uploads) follows from the rows, and is put right at the
-- end. Every step is safe to run again.
local ceiling = require('mts.ceiling')
local commit = require('mts.commit')
local errors = require('mts.errors')
local extent = require('mts.extent')
local fiber = require('fiber')
local marks = require('mts.journal_marks')
local object = require('mts.object')
local producer = require('mts.producer')
local recovery = require('mts.recovery')
local schema = require('mts.schema')
local subjects = require('mts.subject')
local txn = require('mts.txn')
local upload = require('mts.upload')

local F, O, P, T, U = schema.message, schema.object, schema.partition, schema.trash, schema.upload
local M = {REASON = 'restored'} -- why an upload was ended here

local SPARE_NUMBERS = 2 ^ 20 -- of incarnations and producers: those given after the last segment are not known
local REMOVED, KEPT = 'removed_before_restore', 24 * 3600
local EMPTY = schema.map{}
local heads = {} -- by subject and partition: where the journal says that it begins

-- Nothing is given out from now on. With `anew`, what stands beside the messages is taken from the journal alone.
function M.begin(anew)
    recovery.set('replaying')
    heads = {}
    if anew then
        for _, name in ipairs(marks.SIDE) do
            box.space[name]:truncate()
        end
    end
    return true
end

local function need_replaying()
    if recovery.state() ~= 'replaying' then
        errors.refuse('recovery_conflict', 'no restore is under way here')
    end
end

-- A session does not outlive a restore; its partition is free.
local function without_session(name, row)
    if name == 'consumer_partition' then
        row[schema.consumer_partition.session_id] = box.NULL
    end
    return row
end

local function apply_side(name, row, key, head)
    if schema.present(row) then
        box.space[name]:replace(without_session(name, row))
    else
        box.space[name]:delete(key)
    end
    if name == 'partition' then
        local from = schema.present(row) or key
        heads[from[P.subject] .. '\0' .. tostring(from[P.partition])] = {from[P.subject], from[P.partition],
            schema.present(head)}
    end
end

-- What was removed stays removed, and its payload goes; not at once, since the operator may want another restore.
local function remove(sequence)
    local row = box.space.message:delete(sequence)
    if row and row[F.unverified] ~= true and not object.in_trash(row[F.object_name]) then
        object.discard(row[F.object_name], REMOVED, false, KEPT)
    end
end

local function apply_all(rows, side, removed)
    for _, row in ipairs(rows) do
        box.space.message:replace(row)
    end
    for _, item in ipairs(side) do
        apply_side(item[1], item[2], item[3], item[4])
    end
    for _, sequence in ipairs(removed) do
        remove(sequence)
    end
end

-- Rows of one segment, in the order of the segments; some at a time.
function M.apply(rows, side, removed)
    need_replaying()
    return txn.run(function()
        marks.unmarked(function()
            apply_all(rows, side, removed)
        end)
        return #rows
    end)
end

-- Run `visit(row)` over a whole space in transactions of bounded size. It may change and delete the row it is given.
function M.each(space, visit)
    local parts, key = space.index.primary.parts, nil
    repeat
        local rows = space.index.primary:select(key or {},
            {iterator = key and 'GT' or 'ALL', limit = schema.PER_TRANSACTION})
        txn.run(function(effects)
            for _, row in ipairs(rows) do
                visit(row, effects)
            end
        end)
        local last = rows[#rows]
        key = {}
        for place, part in ipairs(parts) do
            key[place] = last and last[part.fieldno]
        end
        fiber.yield()
    until #rows < schema.PER_TRANSACTION
end

-- What was removed from the head of a partition before the last segment was written.
local function cut_heads()
    local cut = 0
    for _, head in pairs(heads) do
        local subject, partition, first = unpack(head, 1, 3)
        local index, rows = box.space.message.index.subject_partition, {}
        repeat
            rows = first and index:select({subject, partition}, {iterator = 'EQ', limit = schema.PER_TRANSACTION}) or {}
            local left = txn.run(function()
                for place, row in ipairs(rows) do
                    if row[F.sequence] >= first then
                        return place
                    end
                    remove(row[F.sequence])
                    cut = cut + 1
                end
                return nil
            end)
        until left or #rows == 0
    end
    return cut
end

-- Is what is left of a deleted subject still being cleared away, this row too?
local function is_being_cleared(row)
    for _, job in box.space.purge:pairs() do
        if job[schema.purge.subject] == row[F.subject] and row[F.sequence] <= job[schema.purge.upto] then
            return true
        end
    end
    return false
end

-- The subject that a row belongs to, or nil: it was deleted, whether one of its name was made again or not.
local function owner_of(row)
    local found = subjects.find(row[F.subject])
    local first = found and schema.present(found[schema.subject.first_sequence]) or 0
    return found and row[F.sequence] >= first and found or nil
end

-- Messages of deleted subjects whose removal nothing tells of any more. Up to `told` the journal tells of every subject
-- that was there; below the first message of one that is, there was another.
local function cut_deleted(told)
    local cut = 0
    M.each(box.space.message, function(row)
        local is_known = row[F.sequence] <= told or subjects.find(row[F.subject]) ~= nil
        if is_known and owner_of(row) == nil and not is_being_cleared(row) then
            remove(row[F.sequence])
            cut = cut + 1
        end
    end)
    return cut
end

-- The subject of a row; one that the journal told nothing of is made, as old as its first message. Nil for what is
-- being cleared away.
local function subject_of(row)
    local found = owner_of(row)
    if found == nil then
        if is_being_cleared(row) then
            return nil
        end
        found = box.space.subject:insert{row[F.subject], box.sequence.incarnation:next(), 1, tonumber(row[F.create_at]),
            EMPTY, extent.first(row), 1}
    end
    if found[schema.subject.partitions] <= row[F.partition] then
        found = subjects.change(found, {[schema.subject.partitions] = row[F.partition] + 1})
    end
    return found
end

-- A pack of which only a part was removed stays.
local function count_reference(name)
    local doomed = box.space.trash:get(name)
    if doomed and doomed[T.reason] == REMOVED then
        box.space.trash:delete(name)
    end
    local row = box.space.object:get(name)
    if row then
        box.space.object:update(name, {{'+', O.refs, 1}})
    elseif object.is_pack(name) then
        box.space.object:insert{name, 1}
    end
end

-- The upload that a message came from, if this server still knows it as unfinished.
local function unfinished_upload(row, frames)
    local id = object.upload_id(row[F.object_name])
        or frames[row[F.object_name] .. '\0' .. tostring(row[F.byte_from])]
    local found = id and box.space.upload:get(id)
    return found and (found[U.state] == 'open' or found[U.state] == 'stored') and found or nil
end

local function leave_pending(row)
    if row[U.producer_no] ~= nil then
        producer.remove_pending(row[U.producer_no], row[U.seqno])
    end
end

local function count_rows(frames)
    local lanes = {}
    M.each(box.space.message, function(row)
        local subject_row = subject_of(row)
        if row[F.unverified] ~= true then
            count_reference(row[F.object_name])
        end
        local ended = unfinished_upload(row, frames)
        if ended then
            leave_pending(ended)
            box.space.upload:update(ended[U.id], {{'=', U.state, 'committed'}, {'=', U.sequence, row[F.sequence]},
                {'=', U.due_at, ended[U.expires_at]}, {'=', U.sizes, box.NULL}, {'=', U.headers, EMPTY}})
        end
        if subject_row then
            local id = row[F.subject] .. '\0' .. tostring(row[F.partition])
            local lane = lanes[id] or {row[F.subject], row[F.partition], 0, 0, 0, 0}
            lanes[id] = lane
            lane[P.next_offset] = row[F.offset] + 1
            lane[P.messages] = lane[P.messages] + tonumber(row[F.count])
            lane[P.bytes] = lane[P.bytes] + tonumber(row[F.size])
            lane[P.unverified] = lane[P.unverified] + (row[F.unverified] == true and tonumber(row[F.count]) or 0)
        end
    end)
    return lanes
end

local function write_lanes(lanes)
    M.each(box.space.partition, function(row)
        local id = row[P.subject] .. '\0' .. tostring(row[P.partition])
        local lane = lanes[id] or {nil, nil, 0, 0, 0, 0}
        lanes[id] = nil
        local next_offset = lane[P.next_offset] > row[P.next_offset] and lane[P.next_offset] or row[P.next_offset]
        box.space.partition:update({row[P.subject], row[P.partition]}, {{'=', P.next_offset, next_offset},
            {'=', P.messages, lane[P.messages]}, {'=', P.bytes, lane[P.bytes]},
            {'=', P.unverified, lane[P.unverified]}})
    end)
    txn.run(function()
        for _, lane in pairs(lanes) do
            box.space.partition:replace(lane)
        end
    end)
end

-- An upload that is not committed by the journal waits for the operator; one that its producer's later messages passed
-- over, or whose transaction is lost, has ended, and its payload, if any, is an orphan.
local function is_passed_over(row)
    if row[U.producer_no] == nil then
        return row[U.transaction_id] ~= nil
    end
    local owner = box.space.producer.index.no:get(row[U.producer_no])
    return owner == nil or row[U.transaction_id] ~= nil
        or row[U.seqno] <= (schema.present(owner[schema.producer.last_seqno]) or 0)
end

local function hold_uploads()
    local held = 0
    box.space.reservation:truncate()
    M.each(box.space.upload, function(row)
        if row[U.state] ~= 'open' and row[U.state] ~= 'stored' then
            return
        end
        if is_passed_over(row) then
            leave_pending(row)
            box.space.upload:update(row[U.id], {{'=', U.state, 'aborted'}, {'=', U.reason, M.REASON},
                {'=', U.due_at, schema.NEVER}})
            return
        end
        held = held + 1
        box.space.upload:update(row[U.id], {{'=', U.due_at, schema.NEVER}})
        if row[U.byte_from] ~= nil then
            count_reference(row[U.object_name])
        end
        if row[U.reserved] == true then
            local messages, bytes = upload.amount(schema.present(row[U.sizes]), row[U.size])
            box.space.reservation:upsert({row[U.incarnation], messages, bytes}, {{'+', 2, messages}, {'+', 3, bytes}})
        end
    end)
    return held
end

-- A transaction that had not ended has come to nothing: what became of it later is not known.
local function end_transactions()
    for _, name in ipairs{'transaction_item', 'transaction', 'session'} do
        box.space[name]:truncate()
    end
    M.each(box.space.producer, function(row)
        if row[schema.producer.transaction_id] ~= nil then
            box.space.producer:update({row[1], row[2]}, {{'=', schema.producer.transaction_id, box.NULL}})
        end
    end)
end

local function go_on_numbers()
    local highest = {incarnation = 0, producer = 0}
    for _, row in box.space.subject:pairs() do
        highest.incarnation = math.max(highest.incarnation, tonumber(row[schema.subject.incarnation]))
    end
    for _, row in box.space.purge:pairs() do
        highest.incarnation = math.max(highest.incarnation, tonumber(row[schema.purge.incarnation]))
    end
    local newest = box.space.producer.index.no:max()
    highest.producer = newest and tonumber(newest[schema.producer.no]) or 0
    for name, used in pairs(highest) do
        local ok, current = pcall(box.sequence[name].current, box.sequence[name])
        box.sequence[name]:set(math.max(used, ok and tonumber(current) or 0) + SPARE_NUMBERS)
    end
end

local function free_leases()
    for _, row in ipairs(box.space.state:select('lease.', {iterator = 'GE'})) do
        if row[schema.state.key]:sub(1, 6) == 'lease.' then
            box.space.state:delete(row[schema.state.key])
        end
    end
end

-- Make a whole of what was applied. `told`: the last sequence up to which the journal holds all that belongs to the
-- messages; 0 when that is not known. Answers how many rows were cut, and how many uploads wait.
function M.settle(told)
    need_replaying()
    local cut = cut_heads() + cut_deleted(told or 0)
    local last = box.space.message.index.primary:max()
    if last then
        commit.go_on_behind(last[F.sequence]) -- who looks at messages from now on looks at all of them
    end
    local frames = {}
    M.each(box.space.upload, function(row)
        if row[U.byte_from] ~= nil and row[U.state] == 'stored' then
            frames[row[U.object_name] .. '\0' .. tostring(row[U.byte_from])] = row[U.id]
        end
    end)
    M.each(box.space.object, function(row)
        box.space.object:update(row[O.object_name], {{'=', O.refs, 0}})
    end)
    go_on_numbers()
    write_lanes(count_rows(frames))
    local held = hold_uploads()
    end_transactions()
    M.each(box.space.object, function(row)
        if row[O.refs] == 0 and not object.in_trash(row[O.object_name]) then
            box.space.object:delete(row[O.object_name]) -- nothing points at it: an orphan
        end
    end)
    txn.run(free_leases)
    return {cut = cut, held = held, messages = box.space.message:len()}
end

-- Messages whose payload the bucket does not hold: a rebuild drops them.
function M.drop(sequences)
    need_replaying()
    return txn.run(function()
        for _, sequence in ipairs(sequences) do
            box.space.message:delete(sequence)
        end
        return #sequences
    end)
end

-- Ends a restore: numbers go on behind `base`, the bucket's ceiling, up to `top`, which the bucket knows by now too.
-- `number` is the last segment that the bucket holds, `journal_at` when it was written (0: there is none).
function M.finish(base, top, number, journal_at)
    need_replaying()
    local upto = box.space.message.index.primary:max()
    txn.run(function()
        box.space.state:replace{'journal', {number = number, upto = upto and upto[F.sequence] or 0, at = 0,
            checkpoint_at = 0}}
    end)
    commit.go_on_behind(base)
    ceiling.raise(top)
    recovery.set('pending', {journal_at = journal_at})
    return {given = commit.given(), last = upto and upto[F.sequence] or 0}
end

return M
