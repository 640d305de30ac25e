-- Expiry: each subject is walked from its head, extent by extent, until one that stays. Time never steps back within
-- a subject, so what stands behind that one stays too: nothing is scanned. Important durables hold back what they have
-- not acked. Rows, counters, delivery state and the payload's way to the trash change in one transaction.
local clock = require('mts.clock')
local clocks = require('mts.compare_clocks')
local commit = require('mts.commit')
local consumer = require('mts.consumer')
local extent = require('mts.extent')
local fiber = require('fiber')
local hold = require('mts.retention_hold')
local message = require('mts.message')
local recovery = require('mts.recovery')
local schema = require('mts.schema')
local settings = require('mts.subject_settings')
local ttl = require('mts.ttl')
local txn = require('mts.txn')

local F, P, S = schema.message, schema.partition, schema.subject
local M = {}

local CURSOR, LAST = 'ttl_cursor', 'ttl_last'
local REASON = 'expired'
local AT_ONCE = 100 -- extents a transaction, when nobody waits for the end
local MOST_NAMED = 100000 -- messages that one call of delete_older deletes and names

-- What a subject may keep: {cutoff, max_messages, max_bytes, messages, bytes}, or nil when it keeps everything.
local function limits_of(subject_row, older_than)
    local name = subject_row[S.name]
    local seconds = older_than or ttl.of(name, subject_row)
    local limits = {cutoff = seconds and clock.seconds() - seconds, messages = 0, bytes = 0}
    if older_than == nil and ttl.get().enabled then
        local set = settings.of(subject_row)
        limits.max_messages, limits.max_bytes = set.max_messages, set.max_bytes
    end
    if limits.max_messages or limits.max_bytes then
        for _, lane in box.space.partition:pairs({name}, {iterator = 'EQ'}) do
            limits.messages, limits.bytes = limits.messages + lane[P.messages], limits.bytes + lane[P.bytes]
        end
    elseif limits.cutoff == nil then
        return nil
    end
    return limits
end

-- Must this extent, the first that is left, go? By number or bytes only if what is left without it is still as much as
-- the subject may keep: the newest messages are always there, whole extents of them.
local function must_go(limits, row)
    return (limits.cutoff ~= nil and row[F.create_at] < limits.cutoff)
        or (limits.max_messages ~= nil and limits.messages - row[F.count] >= limits.max_messages)
        or (limits.max_bytes ~= nil and limits.bytes - row[F.size] >= limits.max_bytes)
end

local function pass(limits, row)
    limits.messages, limits.bytes = limits.messages - row[F.count], limits.bytes - row[F.size]
end

local function head_of(subject_row, limit)
    local first = schema.present(subject_row[S.first_sequence]) or 0
    return box.space.message.index.subject_sequence:select({subject_row[S.name], first},
        {iterator = 'GE', limit = limit})
end

-- Each extent that goes is looked up for every durable: the more there are, the fewer extents in one transaction.
local function cost_of(subject)
    return 1 + math.floor(box.space.consumers.index.subject:count({subject}, {iterator = 'EQ'}) / 16)
end

local function note(walk, row, is_last)
    walk.rows, walk.messages, walk.bytes = walk.rows + 1, walk.messages + tonumber(row[F.count]),
        walk.bytes + tonumber(row[F.size])
    if walk.named then
        for index = 0, row[F.count] - 1 do
            table.insert(walk.named, {sequence = extent.first(row) + index, subject = row[F.subject],
                object_name = is_last and row[F.object_name] or nil})
        end
    end
end

-- What is held back is told by the rounds, whose limits are the subject's own.
local function tell(walk, subject, entry)
    if walk.older_than == nil then
        hold.set(subject, entry)
    end
end

-- Expire what must go of one subject, as far as `walk.left` allows. False when there may be more.
local function expire(walk, subject_row)
    local name, limits = subject_row[S.name], limits_of(subject_row, walk.older_than)
    local rows = limits and head_of(subject_row, 1) or {}
    if rows[1] == nil or rows[1][F.subject] ~= name or not must_go(limits, rows[1]) then
        tell(walk, name, nil)
        return true
    end
    local held, top, cost = consumer.held_sequence(name), commit.watermark(), cost_of(name)
    rows = head_of(subject_row, math.max(1, math.floor(walk.left / cost)))
    for _, row in ipairs(rows) do
        if row[F.subject] ~= name or row[F.sequence] > top or not must_go(limits, row) then
            tell(walk, name, nil)
            return true
        end
        if held ~= nil and row[F.sequence] > held then
            tell(walk, name, hold.measure(name, row, limits, must_go, pass))
            return true
        end
        pass(limits, row)
        note(walk, row, message.remove(row, REASON))
        walk.left = walk.left - cost
    end
    return false
end

local function cursor()
    local row = box.space.state:get(CURSOR)
    return row and row[schema.state.value] or ''
end

-- Go over subjects from `from` on. Returns the subject to go on with, or nil behind the last one.
local function walk_subjects(walk, from)
    for _, subject_row in box.space.subject:pairs({from}, {iterator = 'GE'}) do
        if walk.left <= 0 or walk.subjects == schema.PER_TRANSACTION or not expire(walk, subject_row) then
            return subject_row[S.name]
        end
        walk.subjects = walk.subjects + 1
    end
end

local function new_walk(limit, older_than, named)
    return {left = math.min(limit, schema.PER_TRANSACTION), rows = 0, messages = 0, bytes = 0, subjects = 0,
        older_than = older_than, named = named}
end

-- One transaction of a round over all subjects: {messages, rows, bytes, subjects, more}. Where it ends is kept, so
-- whoever calls next, also after a crash, goes on there. With clocks that are not to be trusted it does nothing, nor
-- where the bucket is ahead of this server: what expires here may stay longer there.
function M.step(limit)
    return txn.run(function()
        if not clocks.are_right() or recovery.is_needed() then
            return {messages = 0, rows = 0, bytes = 0, subjects = 0, more = false,
                clocks_differ = not clocks.are_right()}
        end
        local walk, from = new_walk(limit), cursor()
        local next_one = walk_subjects(walk, from)
        if next_one == nil then
            box.space.state:delete(CURSOR)
            box.space.state:replace{LAST, {at = clock.seconds()}}
        elseif next_one ~= from then
            box.space.state:replace{CURSOR, next_one}
        end
        return {messages = walk.messages, rows = walk.rows, bytes = walk.bytes, subjects = walk.subjects,
            more = next_one ~= nil, clocks_differ = false}
    end)
end

-- The rest of a round, in small transactions and at most half of the time: others wait as long as one takes.
function M.run()
    local messages, step = 0
    repeat
        local begun = fiber.clock()
        step = M.step(AT_ONCE)
        messages = messages + step.messages
        if step.more then
            fiber.sleep(fiber.clock() - begun)
        end
    until not step.more
    return messages, step.clocks_differ
end

-- The specification's delete_old_messages: of all subjects, whatever their own ttl. An object is named where nothing
-- points at it any more; deleting it is the sweeper's work.
function M.delete_older(seconds)
    local named, from = schema.array{}, ''
    repeat
        if not clocks.are_right() then
            error('the clocks of Tarantool and of the object store differ, or were not compared yet', 0)
        elseif recovery.is_needed() then
            error('this server is older than its bucket: `mts restore` or `mts rebuild` mends that', 0)
        end
        local step = txn.run(function()
            local walk = new_walk(schema.PER_TRANSACTION, seconds, {})
            return {named = walk.named, next_one = walk_subjects(walk, from)}
        end)
        for _, entry in ipairs(step.named) do
            table.insert(named, entry)
        end
        from = step.next_one
    until from == nil or #named >= MOST_NAMED
    return #named, named
end

-- When the last round came to its end; nil when none has.
function M.last_round()
    local row = box.space.state:get(LAST)
    return row and row[schema.state.value].at
end

return M
