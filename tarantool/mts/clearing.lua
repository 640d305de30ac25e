-- What is left of a deleted subject is cleared away in the background, some rows a transaction. Its row in the space
-- `purge` stays until nothing is left, so whoever calls next, also after a crash, goes on.
local clock = require('mts.clock')
local commit = require('mts.commit')
local consumer = require('mts.consumer')
local fiber = require('fiber')
local object = require('mts.object')
local outcome = require('mts.upload_outcome')
local producer = require('mts.producer')
local quarantine = require('mts.quarantine')
local schema = require('mts.schema')
local system = require('clock')
local txn = require('mts.txn')

local C, F, P, Q = schema.consumers, schema.message, schema.producer, schema.purge
local M = {}

local REASON = 'subject_deleted'

-- Others are served between two transactions, and get most of the time: after each, this rests for longer than it took.
local PER_STEP = 100
local REST = 15

-- Inside the transaction that deletes the subject's row.
function M.begin(name, incarnation)
    box.space.purge:insert{incarnation, name, commit.given(), clock.seconds()}
end

local function has_rows(index, key)
    return index:select(key, {iterator = 'EQ', limit = 1})[1] ~= nil
end

-- Up to `walk.left` rows that stand under a key, to be deleted.
local function take(walk, index, key)
    if walk.left == 0 then
        return {}
    end
    local found = index:select(key, {iterator = 'EQ', limit = walk.left})
    walk.left = walk.left - #found
    return found
end

-- Delete what stands under a key; true when nothing is left there.
local function delete_all(walk, space, key)
    for _, row in ipairs(take(walk, space.index.primary, key)) do
        local primary = {}
        for _, part in ipairs(space.index.primary.parts) do
            table.insert(primary, row[part.fieldno])
        end
        space:delete(primary)
    end
    return not has_rows(space.index.primary, key)
end

-- A payload that nobody verified was never ours: its object stays. Rows of one pack follow each other.
local function messages(walk, job)
    local rows_of = {}
    for _, row in ipairs(take(walk, box.space.message.index.subject_sequence, {job[Q.subject]})) do
        if row[F.sequence] > job[Q.upto] then
            walk.left = walk.left + 1 -- of a newer incarnation
        else
            box.space.message:delete(row[F.sequence])
            quarantine.moved(row, {})
            if row[F.unverified] ~= true then
                local name = row[F.object_name]
                rows_of[name] = (rows_of[name] or 0) + 1
            end
        end
    end
    for name, rows in pairs(rows_of) do
        object.release(name, REASON, nil, rows)
    end
end

-- What hangs on a producer's number; true when nothing is left.
local function producer_rows(walk, no)
    local pending = box.space.producer_upload.index.primary
    for _, entry in ipairs(take(walk, pending, {no})) do
        outcome.abandon(walk.effects, entry[schema.producer_upload.upload_id], REASON, walk.put_grace)
        producer.remove_pending(no, entry[schema.producer_upload.seqno])
    end
    return delete_all(walk, box.space.producer_range, {no}) and not has_rows(pending, {no})
end

-- Producers of the new incarnation may stand between those that go: the walk remembers how far it came.
local function producers(walk, job)
    local subject, cursor = job[Q.subject], schema.present(job[Q.cursor])
    local passed = cursor
    local from = {subject, cursor or ''}
    for _, row in ipairs(box.space.producer:select(from, {iterator = cursor and 'GT' or 'GE', limit = walk.left})) do
        if row[P.subject] ~= subject or walk.left == 0 then
            break
        end
        if row[P.incarnation] == job[Q.incarnation] then
            if not producer_rows(walk, row[P.no]) or walk.left == 0 then
                break
            end
            box.space.producer:delete{subject, row[P.producer_id]}
        end
        walk.left = walk.left - 1
        passed = row[P.producer_id]
    end
    if passed ~= cursor then
        box.space.purge:update(job[Q.incarnation], {{'=', Q.cursor, passed}})
    end
end

-- Producers whose name one of the new incarnation took.
local function retired_producers(walk)
    for _, row in ipairs(box.space.purge_producer:select({}, {limit = walk.left})) do
        if not producer_rows(walk, row[1]) or walk.left == 0 then
            return
        end
        box.space.purge_producer:delete(row[1])
        walk.left = walk.left - 1
    end
end

local function consumers(walk, job)
    for _, row in ipairs(box.space.consumers.index.subject:select{job[Q.subject]}) do
        local of = schema.present(row[C.incarnation])
        if walk.left > 0 and (of == nil or of == job[Q.incarnation]) then
            walk.left = walk.left - consumer.remove_some(row, walk.left)
        end
    end
end

-- One transaction: how many rows it touched, and whether there is more to do.
local function step(effects, limit, put_grace)
    local job = box.space.purge.index.primary:min()
    if job == nil then
        return {touched = 0, more = false}
    end
    local walk = {left = limit, effects = effects, put_grace = put_grace}
    local incarnation = job[Q.incarnation]
    messages(walk, job)
    delete_all(walk, box.space.idempotency, {incarnation})
    delete_all(walk, box.space.route, {incarnation})
    producers(walk, job)
    retired_producers(walk)
    consumers(walk, job)
    if walk.left > 0 then
        box.space.reservation:delete(incarnation)
        box.space.purge:delete(incarnation)
    end
    return {touched = limit - walk.left, more = walk.left == 0 or box.space.purge:len() > 0}
end

-- Clear away up to `limit` rows of deleted subjects. `put_grace`: how long a PUT begun with a ticket may last.
function M.run(limit, put_grace)
    local left, more, cleared = limit, true, 0
    while left > 0 and more do
        local began = system.monotonic()
        local result = txn.run(step, math.min(left, PER_STEP), put_grace)
        left, more, cleared = left - math.max(result.touched, 1), result.more, cleared + result.touched
        if more then
            fiber.sleep((system.monotonic() - began) * REST)
        end
    end
    return {purged = cleared, more = more}
end

return M
