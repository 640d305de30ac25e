-- Readers that share the partitions of an ordered durable: each partition has one reader at a time. Joining under a
-- name fences whoever had it before (`epoch`); moving a partition fences its former reader (`fence`). Deadlines are
-- kept in memory, so a heartbeat writes nothing; after a restart every session has its whole time again. So is who
-- reads what, as long as nothing has changed that it depends on: a call costs what its session's partitions cost.
local clock = require('mts.clock')
local deadlines = require('mts.session_deadline')
local durables = require('mts.durable')
local errors = require('mts.errors')
local position = require('mts.position')
local schema = require('mts.schema')
local settings = require('mts.subject_settings')
local subjects = require('mts.subject')
local txn = require('mts.txn')

local C, F, S = schema.consumers, schema.consumer_partition, schema.session
local M = {}

-- By durable: {fence, subject, rollbacks, until_ms, held = {[session id] = {partition, ...}}}, as of its last spread.
local spreads = {}

-- The last spread if it still holds: no session can have ended, nobody has come (who does changes the fence, as a seek
-- does), no partition has come or gone (that is another row of the subject), and nothing was taken back.
local function current_spread(row)
    local known = spreads[durables.name(row)]
    local holds = known and known.fence == row[C.fence] and known.subject == subjects.find(row[C.subject])
        and known.rollbacks == txn.rollbacks() and clock.steady_ms() < known.until_ms
    return holds and known or nil
end

-- Spread anew when next asked.
function M.forget(row)
    spreads[durables.name(row)] = nil
end

local function sessions_of(row)
    return box.space.session:select(durables.key(row), {iterator = 'EQ'})
end

-- How many readers are alive.
function M.count(row)
    local now, count = clock.steady_ms(), 0
    for _, session in ipairs(sessions_of(row)) do
        count = count + (deadlines.of(session) > now and 1 or 0)
    end
    return count
end

-- For calls that move a position without a session.
function M.refuse_if_alive(row)
    if M.count(row) > 0 then
        errors.refuse('sessions_active', 'this durable is read by sessions; acknowledge through them',
            {sessions = M.count(row)})
    end
end

-- Who gets how many: as even as can be, the odd ones to those that have most, so that little moves.
local function quotas(live, owned, total)
    local order = {}
    for _, id in ipairs(live) do
        table.insert(order, id)
    end
    table.sort(order, function(a, b)
        if #owned[a] ~= #owned[b] then
            return #owned[a] > #owned[b]
        end
        return a < b
    end)
    local quota = {}
    for i, id in ipairs(order) do
        quota[id] = math.floor(total / #live) + (i <= total % #live and 1 or 0)
    end
    return quota
end

-- {[partition] = session id} over the live sessions: who has a partition keeps it as long as that is even.
local function spread(readable, live, holders)
    local owned, target, free = {}, {}, {}
    for _, id in ipairs(live) do
        owned[id] = {}
    end
    for _, partition in ipairs(readable) do
        local holder = holders[partition]
        if holder and owned[holder] then
            table.insert(owned[holder], partition)
        else
            table.insert(free, partition)
        end
    end
    local quota = quotas(live, owned, #readable)
    local counts = {}
    for _, id in ipairs(live) do
        counts[id] = math.min(#owned[id], quota[id])
        for i, partition in ipairs(owned[id]) do
            if i <= quota[id] then
                target[partition] = id
            else
                table.insert(free, partition)
            end
        end
    end
    table.sort(free)
    for _, id in ipairs(live) do
        while counts[id] < quota[id] do
            target[table.remove(free, 1)] = id
            counts[id] = counts[id] + 1
        end
    end
    return target
end

-- {[partition] = session id}, and the rows they stand in.
function M.holders(row)
    local holders, entries = {}, {}
    for _, entry in ipairs(box.space.consumer_partition:select(durables.key(row))) do
        holders[entry[F.partition]] = schema.present(entry[F.session_id])
        entries[entry[F.partition]] = entry
    end
    return holders, entries
end

-- Remember who reads what. `until_ms`: before that no session ends.
local function remember(row, target, until_ms)
    local held = {}
    for partition, id in pairs(target) do
        held[id] = held[id] or {}
        table.insert(held[id], partition)
    end
    for _, partitions in pairs(held) do
        table.sort(partitions)
    end
    spreads[durables.name(row)] = {fence = row[C.fence], subject = subjects.find(row[C.subject]),
        rollbacks = txn.rollbacks(), until_ms = until_ms, held = held}
end

-- Spread what may be read now over the live sessions; writes only what changes.
local function rebalance(row, live, until_ms)
    local holders, entries = M.holders(row)
    local readable, lasts = {}, false
    if #live > 0 then
        readable, lasts = position.readable(row)
    end
    local target = #live > 0 and spread(readable, live, holders) or {}
    for partition, entry in pairs(entries) do
        if holders[partition] and target[partition] == nil then
            box.space.consumer_partition:update({row[C.durable_name], row[C.subject], partition},
                {{'=', F.session_id, box.NULL}})
        end
        entries[partition] = entry[F.acked]
    end
    for _, partition in ipairs(readable) do
        if target[partition] ~= holders[partition] then
            local fence
            row, fence = durables.next_fence(row)
            position.assign(row, partition, target[partition], entries[partition] or 0, fence)
        end
    end
    M.forget(row)
    if lasts then
        remember(row, target, until_ms)
    end
    return row
end

-- Drop the dead, spread over the rest. Returns the row and how many were dropped.
local function settle(row)
    local now, live, dropped, until_ms = clock.steady_ms(), {}, 0, math.huge
    for _, session in ipairs(sessions_of(row)) do
        local deadline = deadlines.of(session)
        if deadline > now then
            table.insert(live, session[S.session_id])
            until_ms = math.min(until_ms, deadline)
        else
            box.space.session:delete{session[S.durable_name], session[S.subject], session[S.session_id]}
            dropped = dropped + 1
        end
    end
    return rebalance(row, live, until_ms), dropped
end

-- The same, when it may be needed.
local function refresh(row)
    return current_spread(row) and row or (settle(row))
end

-- A transaction of its own, so that the dead stay dropped also when the call that noticed them is refused.
function M.drop_dead(subject, durable)
    return txn.run(function()
        local row = durables.find(subject, durable)
        if row == nil or current_spread(row) then
            return 0
        end
        local now = clock.steady_ms()
        for _, session in ipairs(sessions_of(row)) do
            if deadlines.of(session) <= now then
                return select(2, settle(row))
            end
        end
        return 0
    end)
end

-- The session, alive and not fenced; its time begins anew.
local function need(row, session_id, epoch)
    local session = box.space.session:get{row[C.durable_name], row[C.subject], session_id}
    if session == nil or epoch > session[S.epoch] then
        errors.refuse('unknown_session', 'this session has ended; join again', {session_id = session_id})
    end
    if epoch < session[S.epoch] then
        errors.refuse('session_fenced', 'another reader has joined under this name; join under another',
            {session_id = session_id})
    end
    deadlines.renew(session)
    return session
end

-- {{partition, fence, position}, ...} that a session reads.
function M.partitions(row, session_id)
    local held, known = schema.array{}, current_spread(row)
    local function add(entry)
        local floor, acked = row[C.last_sequence], entry[F.acked]
        table.insert(held, {partition = entry[F.partition], fence = entry[F.fence],
            position = acked > floor and acked or floor})
    end
    if known then
        for _, partition in ipairs(known.held[session_id] or {}) do
            add(box.space.consumer_partition:get{row[C.durable_name], row[C.subject], partition})
        end
        return held
    end
    for _, entry in ipairs(box.space.consumer_partition:select(durables.key(row))) do
        if entry[F.session_id] == session_id then
            add(entry)
        end
    end
    return held
end

local function describe(row, session)
    return {session_id = session[S.session_id], epoch = session[S.epoch], ttl = session[S.ttl],
        partitions = M.partitions(row, session[S.session_id])}
end

-- The row after `need` and a fresh spread, inside a transaction.
function M.enter(subject, durable, session_id, epoch)
    local row = durables.need(subject, durable, 'ordered')
    local session = need(row, session_id, epoch)
    return refresh(row), session
end

-- More readers than there can ever be partitions would have nothing to read, and every call looks at all of them.
local function refuse_crowd(row, session_id)
    local is_known = box.space.session:get{row[C.durable_name], row[C.subject], session_id} ~= nil
    if not is_known and M.count(row) >= settings.MAX_PARTITIONS then
        errors.refuse('quota_exceeded', ('this durable has %d readers, as many as it may have; end some first')
            :format(settings.MAX_PARTITIONS), {limit = settings.MAX_PARTITIONS})
    end
end

function M.join(subject, durable, session_id, ttl)
    if type(session_id) ~= 'string' or session_id == '' or #session_id > 255 then
        errors.refuse('bad_request', 'a session id has 1 to 255 characters')
    end
    return txn.run(function()
        local found = durables.need(subject, durable, 'ordered')
        refuse_crowd(found, session_id)
        local row, epoch = durables.next_fence(found)
        local session = box.space.session:replace{durable, subject, session_id, epoch, math.max(math.ceil(ttl), 1)}
        deadlines.renew(session)
        row = settle(row)
        return describe(row, session)
    end)
end

function M.heartbeat(subject, durable, session_id, epoch)
    M.drop_dead(subject, durable)
    return txn.run(function()
        return describe(M.enter(subject, durable, session_id, epoch))
    end)
end

function M.leave(subject, durable, session_id, epoch)
    M.drop_dead(subject, durable)
    return txn.run(function()
        local row = M.enter(subject, durable, session_id, epoch)
        box.space.session:delete{durable, subject, session_id}
        settle(row)
        return true
    end)
end

-- Acks {{partition, fence, sequence}, ...} of a session, inside a transaction: all of them, or none when one of the
-- partitions is not the session's any more, or was moved since, or `check(row, index, acked)`, if given, refuses one.
function M.apply_acks(subject, durable, session_id, epoch, acks, check)
    local row = durables.need(subject, durable, 'ordered')
    need(row, session_id, epoch)
    for i, ack in ipairs(acks) do
        local entry = box.space.consumer_partition:get{durable, subject, ack[1]}
        if entry == nil or entry[F.session_id] ~= session_id then
            errors.refuse('partition_lost', 'another session reads this partition now; what was not acked goes there',
                {partition = ack[1], session_id = session_id})
        elseif entry[F.fence] ~= ack[2] then
            errors.refuse('position_moved', 'a seek moved this partition, or it was away meanwhile; read on from its '
                .. 'position', {partition = ack[1], session_id = session_id, fence = entry[F.fence]})
        elseif check then
            check(row, i, entry[F.acked])
        end
    end
    local positions = {}
    for _, ack in ipairs(acks) do
        table.insert(positions, {ack[1], ack[3]})
    end
    return refresh(position.ack_partitions(row, positions))
end

function M.ack(subject, durable, session_id, epoch, acks)
    M.drop_dead(subject, durable)
    return txn.run(function()
        local row = M.apply_acks(subject, durable, session_id, epoch, acks)
        return {last_sequence = row[C.last_sequence]}
    end)
end

return M
