-- Deletions that the law or an owner asks for: rows go at once, payloads as soon as the store confirms it. A row in
-- `deletion` says what is to be finished, rows in `erasure` which objects still hold bytes of what was deleted; whoever
-- comes next, also after a crash, goes on from them.
local clock = require('mts.clock')
local commit = require('mts.commit')
local errors = require('mts.errors')
local extent = require('mts.extent')
local message = require('mts.message')
local object = require('mts.object')
local object_rows = require('mts.object_rows')
local schema = require('mts.schema')
local subjects = require('mts.subject')
local txn = require('mts.txn')

local D, E, F = schema.deletion, schema.erasure, schema.message
local M = {}

local REASON = 'deleted'
local KEPT = 24 * 3600 -- seconds for which a finished one is answered again
local TRIES = 3

-- The one that held the payload of a deleted message, while it is not gone.
local function object_of(row)
    local found = row[D.kind] == 'message' and box.space.erasure.index.deletion:min{row[D.id]}
    return found and found[E.object_name] or nil
end

local function describe(row)
    return {id = row[D.id], kind = row[D.kind], subject = row[D.subject], at = row[D.at], who = row[D.who],
        reason = row[D.reason], object_name = object_of(row), sequence = row[D.sequence], upto = row[D.upto],
        messages = row[D.messages], bytes = row[D.bytes], sequences = schema.array(row[D.sequences]),
        removed = row[D.removed], done = row[D.done_at] ~= nil}
end

-- The newest deletion that `fits(row)`. There are few: open ones, and those of the last day.
local function newest(fits)
    for _, row in box.space.deletion:pairs({}, {iterator = 'REQ'}) do
        if fits(row) then
            return row
        end
    end
end

local function holds(sequences, sequence)
    for _, one in ipairs(sequences) do
        if one == sequence then
            return true
        end
    end
    return false
end

-- Rows of an object are gone: `refs` are left. What nobody needs any more is deleted now; from a pack that others need,
-- the bytes must be taken out. A plain payload that others point at is theirs.
local function leave(row, refs, id)
    local name = row[F.object_name]
    if refs == 0 then
        object.discard_at_once(name, REASON)
    end
    if refs > 0 or box.space.object:get(name) ~= nil then
        box.space.object:replace{name, refs}
    end
    if refs == 0 or row[F.byte_from] ~= nil then
        box.space.erasure:replace{name, id, row[F.sequence], box.NULL}
    end
end

-- Take a message out of every row that shares its payload: dead letters, what they came from, what was replayed.
-- Returns the rows that are gone, one a message, and how many rows point at the object now.
local function take_out(row, index, rows)
    local byte = schema.present(extent.slice(row, index, 1)[F.byte_from])
    local gone, refs = {}, object.refs(row[F.object_name])
    for _, one in ipairs(rows) do
        local at = byte == nil and 0 or extent.index_at(one, byte)
        if at then
            local removed, left = message.cut_out(one, at)
            table.insert(gone, removed)
            refs = refs + left - 1
        end
    end
    return gone, refs
end

local function totals(gone)
    local sequences, bytes = {}, 0
    for _, row in ipairs(gone) do
        table.insert(sequences, row[F.sequence])
        bytes = bytes + tonumber(row[F.size])
    end
    return sequences, bytes
end

local function located(sequence)
    local row, index = message.locate(sequence)
    local first = row and message.first_sequence(row[F.subject])
    if first == nil or sequence < first or sequence > commit.watermark() then
        return nil
    end
    return row, index
end

-- nil when the rows around the object changed since `keys` were found.
local function delete_once(sequence, keys, who, reason, id)
    return txn.run(function()
        local row, index = located(sequence)
        if row == nil then
            local known = newest(function(one)
                return one[D.kind] == 'message' and holds(one[D.sequences], sequence)
            end)
            return known and describe(known) or box.NULL
        end
        local name, rows, is_all = row[F.object_name], {row}, true
        if row[F.unverified] ~= true then
            rows, is_all = object_rows.check(name, keys)
        end
        if not is_all then
            return nil
        end
        local gone, refs = take_out(row, index, rows)
        local sequences, bytes = totals(gone)
        if id == nil or box.space.deletion:get(id) ~= nil then
            id = clock.new_id()
        end
        if row[F.unverified] ~= true then
            leave(row, refs, id)
        end
        return describe(box.space.deletion:insert{id, 'message', row[F.subject], clock.seconds(), who, reason,
            sequence, box.NULL, #sequences, bytes, sequences, true})
    end)
end

-- Delete one message, and whatever shares its payload. It is gone for readers when this answers; `work` says what is
-- left to do. Asked again within a day, the same is answered. `id`: of the record that tells of it already.
function M.message(sequence, who, reason, id)
    for _ = 1, TRIES do
        local row = message.locate(sequence)
        local keys = row and row[F.unverified] ~= true and object_rows.find(row[F.object_name], row[F.sequence]) or {}
        local done = delete_once(sequence, keys, who, reason, id)
        if done == nil then -- a null from inside is one too
            if message.locate(sequence) == nil then
                errors.refuse('not_found', 'there is no such message (any more)', {sequence = sequence})
            end
        else
            return done
        end
    end
    errors.refuse('inconsistent', 'more or fewer rows point at the payload of this message than are counted: '
        .. '`mts fsck --repair` mends that, then ask again', {sequence = sequence})
end

-- Delete all messages that a subject has now; the subject stays. While one is not finished, it is answered again.
function M.subject(name, who, reason)
    return txn.run(function()
        if subjects.find(name) == nil then
            errors.refuse('unknown_subject', 'there is no such subject', {subject = name})
        end
        local open = newest(function(row)
            return row[D.kind] == 'subject' and row[D.subject] == name and row[D.done_at] == nil
        end)
        return describe(open or box.space.deletion:insert{clock.new_id(), 'subject', name, clock.seconds(), who, reason,
            box.NULL, commit.given(), 0, 0, {}, false})
    end)
end

-- Remove some rows of a subject's deletion, from its head.
local function remove_some(job)
    local first = message.first_sequence(job[D.subject])
    local rows, messages, bytes = {}, 0, 0
    if first then
        rows = box.space.message.index.subject_sequence:select({job[D.subject], first},
            {iterator = 'GE', limit = schema.PER_TRANSACTION})
    end
    local is_end = #rows < schema.PER_TRANSACTION
    for _, row in ipairs(rows) do
        if row[F.subject] ~= job[D.subject] or row[F.sequence] > job[D.upto] then
            is_end = true
            break
        end
        messages, bytes = messages + tonumber(row[F.count]), bytes + tonumber(row[F.size])
        message.drop(row)
        if row[F.unverified] ~= true then
            leave(row, math.max(object.refs(row[F.object_name]) - 1, 0), job[D.id])
        end
    end
    return box.space.deletion:update(job[D.id], {{'+', D.messages, messages}, {'+', D.bytes, bytes},
        {'=', D.removed, is_end}})
end

-- Inside a transaction: an object that was referred to just now also holds bytes of a purge {id, subject, who, reason,
-- upto} that the bucket has on record. Whoever finishes it writes the object anew without them.
function M.erase(name, record)
    box.space.deletion:replace{record.id, 'subject', record.subject, clock.seconds(), record.who, record.reason,
        box.NULL, record.upto, 0, 0, {}, true}
    box.space.erasure:replace{name, record.id, commit.given(), box.NULL}
end

local function comes_back(record)
    local first = message.first_sequence(record.subject)
    local row = first and box.space.message.index.subject_sequence:select({record.subject, first},
        {iterator = 'GE', limit = 1})[1]
    return row ~= nil and row[F.subject] == record.subject and row[F.sequence] <= record.upto
end

-- Its messages did not come back, but the object that held them is still needed by others: their bytes may be in it.
local function erase_again(record)
    txn.run(function()
        local name = schema.present(record.object_name)
        if name and object.is_referred(name) and box.space.deletion:get(record.id) == nil then
            box.space.deletion:insert{record.id, 'message', record.subject, clock.seconds(), record.who, record.reason,
                record.sequences[1], box.NULL, #record.sequences, 0, record.sequences, true}
            box.space.erasure:replace{name, record.id, record.sequences[1], box.NULL}
        end
    end)
end

-- After a restore: a deletion {id, kind, subject, who, reason, sequences, upto, object_name} that the bucket has on
-- record, once more, whatever of it came back. Rows are gone when this answers whether any were there.
function M.again(record)
    local found = false
    if record.kind == 'message' then
        for _, sequence in ipairs(record.sequences) do
            if located(sequence) then
                M.message(sequence, record.who, record.reason, record.id)
                found = true
            end
        end
        if not found then
            erase_again(record)
        end
        return found
    end
    while comes_back(record) do
        found = true
        txn.run(function()
            remove_some(box.space.deletion:replace{record.id, 'subject', record.subject, clock.seconds(), record.who,
                record.reason, box.NULL, record.upto, 0, 0, {}, false})
        end)
    end
    return found
end

local function need(id)
    local row = box.space.deletion:get(id)
    if row == nil then
        errors.refuse('not_found', 'there is no such deletion to finish', {id = id})
    end
    return row
end

-- Go on with a deletion: rows of it are removed, or, when that is done, `work` lists objects that still hold its bytes:
-- {name, 'trash'} to delete from the store, {name, 'rewrite'} to write anew without them.
function M.work(id, limit)
    return txn.run(function()
        local job, work = need(id), schema.array{}
        -- What is gone from the rows goes from the bucket before more rows go: it is written down twice until then.
        if not job[D.removed] and box.space.erasure.index.deletion:count{id} < limit then
            job = remove_some(job)
        end
        local passed = {}
        for _, row in box.space.erasure.index.deletion:pairs({id}, {iterator = 'EQ'}) do
            local name = row[E.object_name]
            if #work >= limit or #passed >= schema.PER_TRANSACTION then
                break
            end
            if object.in_trash(name) then
                table.insert(work, {name, 'trash'})
            elseif object.is_referred(name) then
                table.insert(work, {name, 'rewrite'})
            else
                table.insert(passed, name)
            end
        end
        for _, name in ipairs(passed) do
            box.space.erasure:delete{name, id}
        end
        if job[D.removed] and job[D.done_at] == nil and #work == 0 and #passed < schema.PER_TRANSACTION then
            job = box.space.deletion:update(id, {{'=', D.done_at, clock.seconds()}})
        end
        return {deletion = describe(job), work = work}
    end)
end

-- Deletions that are not finished, oldest first.
function M.open(limit)
    return txn.run(function()
        local found = schema.array{}
        for _, row in box.space.deletion.index.done:pairs({box.NULL}, {iterator = 'EQ'}) do
            if #found >= limit then
                break
            end
            table.insert(found, describe(row))
        end
        return found
    end)
end

-- Forget finished ones of yesterday; the record in the bucket stays. Returns how many went.
function M.trim()
    return txn.run(function()
        local old = {}
        for _, row in box.space.deletion.index.done:pairs({0}, {iterator = 'GE'}) do
            if row[D.done_at] + KEPT > clock.seconds() or #old >= schema.PER_TRANSACTION then
                break
            end
            table.insert(old, row[D.id])
        end
        for _, id in ipairs(old) do
            box.space.deletion:delete(id)
        end
        return #old
    end)
end

return M
