-- The one place where a sequence is born: in the transaction that makes the message visible, after its payload
-- is stored. Nothing here yields between taking a number and the commit.
local ceiling = require('mts.ceiling')
local changes = require('mts.changes')
local clock = require('mts.clock')
local errors = require('mts.errors')
local rate = require('mts.rate')
local schema = require('mts.schema')
local txn = require('mts.txn')

local F, P = schema.message, schema.partition
local M = {}

local given = 0ULL -- the last sequence handed out, durable or not; a rollback leaves a gap
local watermark = 0ULL -- the last durable one; readers see nothing above it
local last_create_at = {} -- by subject, so that time never steps back within one

function M.start()
    local ok, current = pcall(box.sequence.message.current, box.sequence.message)
    given = ok and 0ULL + current or 0ULL
    local last = box.space.message.index.primary:max()
    if last and last[F.sequence] > given then
        given = 0ULL + last[F.sequence]
    end
    watermark = given
    last_create_at = {}
    ceiling.start()
    txn.start()
    txn.on_durable(function(effects)
        if effects.sequence and effects.sequence > watermark then
            watermark = effects.sequence
        end
        changes.push(effects.uploads, effects.names)
    end)
end

function M.watermark()
    return watermark
end

-- The last sequence handed out, durable or not: what is appended from now on lies above it.
function M.given()
    return given
end

-- Go on behind a sequence: after a restore nothing up to it is given again. Durable when it returns.
function M.go_on_behind(sequence)
    if sequence > given then
        given = 0ULL + sequence
        txn.run(function(effects)
            box.sequence.message:set(sequence)
            effects.sequence = 0ULL + sequence
        end)
    end
    last_create_at = {}
    return given
end

-- A number of its own for the specification's get_next_sequence: durable before it is answered.
function M.next_sequence()
    ceiling.check(given + 1)
    given = given + 1
    local number = given
    txn.run(function(effects)
        box.sequence.message:set(number)
        effects.sequence = number
    end)
    return number
end

local function time_of(subject)
    local last = last_create_at[subject]
    if last == nil then
        local row = box.space.message.index.subject_sequence:max{subject}
        last = row and row[F.create_at] or 0
    end
    local now = clock.seconds()
    if last > now then
        now = last
    end
    last_create_at[subject] = now
    return now
end

function M.forget(subject)
    last_create_at[subject] = nil
end

local function take_offsets(subject, partition, extent)
    local unverified = extent.unverified and extent.count or 0
    local row = box.space.partition:update({subject, partition}, {
        {'+', P.next_offset, extent.count}, {'+', P.messages, extent.count}, {'+', P.bytes, extent.size},
        {'+', P.unverified, unverified}})
    if row == nil then
        row = box.space.partition:insert{subject, partition, extent.count, extent.count, extent.size, unverified}
    end
    return row[P.next_offset] - 1
end

local function insert(effects, subject, partition, extent, sequence, create_at)
    local offset = take_offsets(subject, partition, extent)
    local object_name = extent.object_name or ('%s_%s'):format(subject, tostring(sequence):match('%d+'))
    box.space.message:insert{sequence, extent.headers, object_name, subject, create_at, partition, offset,
        extent.count, extent.size, extent.byte_from or box.NULL, extent.sizes or box.NULL, extent.own or box.NULL,
        extent.content_type or box.NULL, extent.sha256 or box.NULL, extent.codec or box.NULL,
        extent.unverified or box.NULL}
    effects.sequence = sequence
    txn.touch(subject)
    return sequence, offset
end

-- Append an extent {headers, object_name, count, size, ...} to a subject's partition, inside a transaction.
-- Returns the sequence and offset of its last message.
function M.append(effects, subject, partition, extent)
    ceiling.check(given + extent.count)
    given = given + extent.count
    rate.add(subject, partition, extent.size)
    return insert(effects, subject, partition, extent, given, time_of(subject))
end

-- The same with a number and a time that it got elsewhere, above all that were given here. Time does not step back
-- within a subject.
function M.adopt(effects, subject, partition, extent, sequence, create_at)
    assert(sequence > given, 'imported sequences are above all that are given')
    if sequence > ceiling.get().top then
        errors.refuse('unavailable', 'the bucket does not know of so high a sequence yet')
    end
    given = 0ULL + sequence
    local last = last_create_at[subject] or 0
    last_create_at[subject] = create_at > last and create_at or last
    return insert(effects, subject, partition, extent, given, last_create_at[subject])
end

return M
