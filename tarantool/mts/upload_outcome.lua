-- How an upload ends: committed, stored behind an earlier seqno, rejected, aborted or expired. Whatever ends one may
-- free those that wait behind it.
local clock = require('mts.clock')
local commit = require('mts.commit')
local errors = require('mts.errors')
local object = require('mts.object')
local producer = require('mts.producer')
local rejected = require('mts.rejected')
local schema = require('mts.schema')
local subjects = require('mts.subject')
local txn = require('mts.txn')
local upload = require('mts.upload')

local F, P = schema.upload, schema.producer
local M = {}

local EMPTY = setmetatable({}, {__serialize = 'map'})

local function changed(effects, id)
    effects.uploads = effects.uploads or {}
    table.insert(effects.uploads, id)
end

-- A final row stays until its URL and a PUT begun with it have ended, so that late events meet it.
local function finish(effects, row, state, more, put_grace)
    local due_at = math.max(row[F.expires_at], clock.seconds()) + put_grace
    local updates = {{'=', F.state, state}, {'=', F.due_at, due_at}, {'=', F.headers, EMPTY},
        {'=', F.sizes, box.NULL}}
    for _, update in ipairs(more or {}) do
        table.insert(updates, update)
    end
    changed(effects, row[F.id])
    return box.space.upload:update(row[F.id], updates)
end

local function byte_from(row)
    if row[F.byte_from] ~= nil then
        return row[F.byte_from]
    end
    if row[F.sizes] == nil then
        return nil
    end
    local framed = 0
    for _, size in ipairs(row[F.sizes]) do
        framed = framed + size + schema.FRAME_PREFIX
    end
    return row[F.size] - framed
end

local function payload_bytes(row)
    if row[F.sizes] == nil then
        return row[F.size]
    end
    return row[F.size] - byte_from(row) - schema.FRAME_PREFIX * #row[F.sizes]
end

local function make_visible(effects, row, put_grace)
    local sizes = schema.present(row[F.sizes])
    local sequence = commit.append(effects, row[F.subject], 0, {
        headers = row[F.headers], object_name = upload.object_name(row), count = sizes and #sizes or 1,
        size = payload_bytes(row), byte_from = byte_from(row), sizes = sizes, content_type = row[F.content_type],
        sha256 = row[F.sha256]})
    if row[F.producer_id] ~= nil then
        producer.remove_pending(row[F.producer_no], row[F.seqno])
        producer.record(row[F.subject], row[F.producer_id], row[F.seqno], sequence)
    end
    return finish(effects, row, 'committed', {{'=', F.sequence, sequence}}, put_grace)
end

-- Whatever waited behind an ended seqno becomes visible, in order, until an open one is met. At most
-- `schema.PER_TRANSACTION` rows; the first of the rest is made due, so that the reconciler goes on there.
local function free_waiting(effects, producer_no, put_grace)
    for _ = 1, schema.PER_TRANSACTION do
        local first = producer.first_pending(producer_no)
        local row = first and box.space.upload:get(first.upload_id)
        if row == nil or row[F.state] ~= 'stored' then
            return
        end
        make_visible(effects, row, put_grace)
    end
    local next_one = producer.first_pending(producer_no)
    if next_one then
        box.space.upload:update(next_one.upload_id, {{'=', F.due_at, 0}})
    end
end

local function end_without_message(effects, row, state, reason, put_grace)
    if row[F.byte_from] ~= nil then
        object.release(upload.object_name(row), reason)
    else
        object.discard(upload.object_name(row), reason, row[F.part_size] ~= nil)
    end
    row = finish(effects, row, state, {{'=', F.reason, reason}}, put_grace)
    if row[F.producer_no] ~= nil then
        producer.remove_pending(row[F.producer_no], row[F.seqno])
        free_waiting(effects, row[F.producer_no], put_grace)
    end
    return row
end

local function why_not(row, size)
    if not subjects.is_current(row[F.subject], row[F.incarnation]) then
        return 'subject_deleted'
    end
    if object.in_trash(upload.object_name(row)) then
        return 'already_deleted'
    end
    if row[F.size] ~= size then
        return ('size_mismatch: announced %s, stored %s'):format(tostring(row[F.size]), tostring(size))
    end
    return nil
end

local function is_zombie(row)
    local owner = row[F.producer_id] ~= nil and producer.find(row[F.subject], row[F.producer_id])
    return owner and producer.is_fenced(owner, row[F.epoch])
end

local function commit_open(effects, row, size, seen, put_grace)
    if row[F.size] ~= size and not seen then
        return row -- an event may be wrong; only what the store says ends an upload
    end
    local reason = why_not(row, size)
    if reason then
        rejected.record(upload.object_name(row), reason)
        return end_without_message(effects, row, 'rejected', reason, put_grace)
    end
    if is_zombie(row) then
        return end_without_message(effects, row, 'aborted', 'producer_fenced', put_grace)
    end
    if row[F.producer_no] == nil then
        return make_visible(effects, row, put_grace)
    end
    if producer.first_pending(row[F.producer_no]).upload_id ~= row[F.id] then
        changed(effects, row[F.id])
        return box.space.upload:update(row[F.id], {{'=', F.state, 'stored'}, {'=', F.due_at, schema.NEVER}})
    end
    row = make_visible(effects, row, put_grace)
    free_waiting(effects, row[F.producer_no], put_grace)
    return row
end

-- `name` is where the payload lies; an object of another name that holds this id in its key is nobody's.
local function commit_one(effects, id, size, name, seen, put_grace)
    local row = box.space.upload:get(id)
    if row == nil or (name ~= nil and name ~= upload.object_name(row)) then
        return {upload_id = id, state = 'unknown'}
    end
    if row[F.state] == 'open' then
        return upload.receipt(commit_open(effects, row, size, seen, put_grace))
    end
    if row[F.state] ~= 'stored' then
        upload.discard_late(row)
    end
    return upload.receipt(row, row[F.state] == 'committed')
end

-- The payloads {{id, size, object_name, seen}, ...} are in the bucket: commit what fits its ticket. An answer for
-- each, in order. `seen`: the store was asked; without it, an upload whose size differs stays open.
function M.commit(items, put_grace)
    return txn.run(function(effects)
        local receipts = {}
        for _, item in ipairs(items) do
            table.insert(receipts, commit_one(effects, item[1], item[2], item[3], item[4], put_grace))
        end
        return receipts
    end)
end

-- End an upload that `may_end(row)`; the others are answered as they are.
local function ended(id, state, reason, put_grace, may_end)
    return txn.run(function(effects)
        local row = box.space.upload:get(id)
        if row == nil then
            errors.refuse('not_found', 'there is no such upload; it may have ended long ago', {upload_id = id})
        end
        if may_end(row) then
            row = end_without_message(effects, row, state, reason, put_grace)
        end
        return {upload = upload.describe(row), receipt = upload.receipt(row),
            in_trash = object.in_trash(upload.object_name(row))}
    end)
end

function M.abort(id, put_grace)
    return ended(id, 'aborted', 'aborted by the producer', put_grace, function(row)
        if row[F.state] == 'committed' then
            errors.refuse('upload_final', 'this upload is committed; a message cannot be taken back this way',
                {upload_id = id, state = 'committed', sequence = row[F.sequence]})
        end
        return row[F.state] == 'open' or row[F.state] == 'stored'
    end)
end

-- Only the reconciler calls this, after it looked in the store. A ticket that was extended meanwhile stays.
function M.expire(id, put_grace)
    return ended(id, 'expired', 'the payload did not arrive in time', put_grace, function(row)
        return row[F.state] == 'open' and row[F.expires_at] + put_grace <= clock.seconds()
    end)
end

-- A new session of a producer: its epoch fences all older ones, whose open uploads are aborted; stored ones stay.
function M.start_producer(subject, producer_id, put_grace)
    local row = txn.run(function()
        return producer.next_epoch(producer.ensure(subjects.ensure(subject), producer_id))
    end)
    local from = 0
    repeat
        from = txn.run(function(effects)
            local seen = 0
            for _, entry in box.space.producer_upload:pairs({row[P.no], from}, {iterator = 'GE'}) do
                if entry[1] ~= row[P.no] then
                    return nil
                end
                if seen == schema.PER_TRANSACTION then
                    return entry[2]
                end
                seen = seen + 1
                local open = box.space.upload:get(entry[3])
                if open[F.state] == 'open' and producer.is_fenced(row, open[F.epoch]) then
                    end_without_message(effects, open, 'aborted', 'producer_fenced', put_grace)
                end
            end
            return nil
        end)
    until from == nil
    return {producer_id = producer_id, epoch = row[P.epoch],
        last_seqno = producer.find(subject, producer_id)[P.last_seqno]}
end

-- Goes on freeing a chain that was too long for one transaction.
function M.resume(id, put_grace)
    return txn.run(function(effects)
        local row = box.space.upload:get(id)
        if row and row[F.state] == 'stored' then
            box.space.upload:update(id, {{'=', F.due_at, schema.NEVER}})
            free_waiting(effects, row[F.producer_no], put_grace)
        end
        return true
    end)
end

return M
