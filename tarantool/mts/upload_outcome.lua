-- How an upload ends: committed, stored behind an earlier seqno, rejected, aborted or expired. Whatever ends one may
-- free those that wait behind it.
local clock = require('mts.clock')
local commit = require('mts.commit')
local errors = require('mts.errors')
local object = require('mts.object')
local partitions = require('mts.partition')
local producer = require('mts.producer')
local quota = require('mts.quota')
local rejected = require('mts.rejected')
local schema = require('mts.schema')
local subjects = require('mts.subject')
local transactions = require('mts.transaction')
local txn = require('mts.txn')
local upload = require('mts.upload')

local F, P, S = schema.upload, schema.producer, schema.subject
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
    if row[F.own] ~= nil then
        table.insert(updates, {'=', F.own, box.NULL})
    end
    for _, update in ipairs(more or {}) do
        table.insert(updates, update)
    end
    if row[F.reserved] == true then
        quota.release(row[F.incarnation], upload.amount(schema.present(row[F.sizes]), row[F.size]))
        table.insert(updates, {'=', F.reserved, box.NULL})
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

-- The row of the upload's subject; nil when it was deleted, or deleted and made again.
local function current_subject(row)
    local subject_row = subjects.find(row[F.subject])
    return subject_row and subject_row[S.incarnation] == row[F.incarnation] and subject_row or nil
end

-- Nothing of a producer holds up its later seqnos any more; with the last of them it has left its transaction.
local function remove_pending(row)
    if row[F.producer_no] ~= nil then
        producer.remove_pending(row[F.producer_no], row[F.seqno])
        if row[F.transaction_id] ~= nil then
            transactions.leave_producer(row[F.subject], row[F.producer_id], row[F.transaction_id])
        end
    end
end

-- Returns the row, committed, and the partition and offset of its last message.
local function make_visible(effects, subject_row, row, put_grace)
    local sizes = schema.present(row[F.sizes])
    local count, bytes = upload.amount(sizes, row[F.size])
    local partition = partitions.lane_for(subject_row, {producer_id = row[F.producer_id], group = row[F.group],
        hash = row[F.hash]})
    local sequence, offset = commit.append(effects, row[F.subject], partition, {
        headers = row[F.headers], object_name = upload.object_name(row), count = count, size = bytes,
        byte_from = byte_from(row), sizes = sizes, own = schema.present(row[F.own]),
        content_type = row[F.content_type], sha256 = row[F.sha256], codec = row[F.codec]})
    remove_pending(row)
    if row[F.producer_id] ~= nil then
        producer.record(row[F.subject], row[F.producer_id], row[F.seqno], sequence, 1)
    end
    return finish(effects, row, 'committed', {{'=', F.sequence, sequence}}, put_grace), partition, offset
end

-- End one upload; what waits behind it is not touched.
local function close(effects, row, state, reason, put_grace)
    if row[F.byte_from] ~= nil then
        object.release(upload.object_name(row), reason)
    else
        object.discard(upload.object_name(row), reason, row[F.part_size] ~= nil)
    end
    row = finish(effects, row, state, {{'=', F.reason, reason}}, put_grace)
    remove_pending(row)
    return row
end

-- Whatever waited behind an ended seqno becomes visible, in order, until an open one is met. At most
-- `schema.PER_TRANSACTION` rows a transaction, whichever producers they are of: the first of the rest is made due, so
-- that the reconciler goes on there, and its id returned.
local function free_waiting(effects, producer_no, put_grace)
    while true do
        local first = producer.first_pending(producer_no)
        local row = first and box.space.upload:get(first.upload_id)
        if row == nil or row[F.state] ~= 'stored' or row[F.transaction_id] ~= nil then
            return nil
        end
        effects.freed = (effects.freed or 0) + 1
        if effects.freed > schema.PER_TRANSACTION then
            box.space.upload:update(row[F.id], {{'=', F.due_at, 0}})
            return row[F.id]
        end
        local subject_row = current_subject(row)
        if subject_row then
            make_visible(effects, subject_row, row, put_grace)
        else
            close(effects, row, 'rejected', upload.SUBJECT_DELETED, put_grace)
        end
    end
end

local function end_without_message(effects, row, state, reason, put_grace)
    row = close(effects, row, state, reason, put_grace)
    if row[F.producer_no] ~= nil then
        free_waiting(effects, row[F.producer_no], put_grace)
    end
    return row
end

-- Whatever ends an upload whose subject was deleted: that is what became of it, as its receipt has said since.
local function end_of(row, state, reason)
    if current_subject(row) then
        return state, reason
    end
    return 'rejected', upload.SUBJECT_DELETED
end

-- End an upload that nobody waits for, inside a transaction.
function M.abandon(effects, id, reason, put_grace)
    local row = box.space.upload:get(id)
    if row and (row[F.state] == 'open' or row[F.state] == 'stored') then
        local state, why = end_of(row, 'aborted', reason)
        close(effects, row, state, why, put_grace)
    end
end

-- Make an upload of a transaction visible, inside the transaction that commits it.
function M.publish(effects, row, put_grace)
    return make_visible(effects, current_subject(row), row, put_grace)
end

local function why_not(row, size, subject_row)
    if subject_row == nil then
        return upload.SUBJECT_DELETED
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

-- The payload is there; the upload waits, for an earlier seqno or for its transaction.
local function store(effects, row)
    changed(effects, row[F.id])
    return box.space.upload:update(row[F.id], {{'=', F.state, 'stored'}, {'=', F.due_at, schema.NEVER}})
end

local function commit_open(effects, row, size, seen, put_grace)
    if row[F.size] ~= size and not seen then
        return row -- an event may be wrong; only what the store says ends an upload
    end
    local subject_row = current_subject(row)
    local reason = why_not(row, size, subject_row)
    if reason then
        rejected.record(upload.object_name(row), reason)
        return end_without_message(effects, row, 'rejected', reason, put_grace)
    end
    if is_zombie(row) then
        return end_without_message(effects, row, 'aborted', 'producer_fenced', put_grace)
    end
    if row[F.transaction_id] ~= nil then
        if transactions.is_open(row[F.transaction_id]) then
            return store(effects, row)
        end
        return end_without_message(effects, row, 'aborted', 'transaction_ended', put_grace)
    end
    if row[F.producer_no] == nil then
        return make_visible(effects, subject_row, row, put_grace)
    end
    if producer.first_pending(row[F.producer_no]).upload_id ~= row[F.id] then
        return store(effects, row)
    end
    local visible, partition, offset = make_visible(effects, subject_row, row, put_grace)
    free_waiting(effects, row[F.producer_no], put_grace)
    return visible, partition, offset
end

-- `name` is where the payload lies; an object of another name that holds this id in its key is nobody's.
local function commit_one(effects, id, size, name, seen, put_grace)
    local row = box.space.upload:get(id)
    if row == nil or (name ~= nil and name ~= upload.object_name(row)) then
        return {upload_id = id, state = 'unknown'}
    end
    if row[F.state] == 'open' then
        local after, partition, offset = commit_open(effects, row, size, seen, put_grace)
        return upload.receipt(after, nil, partition, offset)
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
            local ending, why = end_of(row, state, reason)
            row = end_without_message(effects, row, ending, why, put_grace)
            if state == 'aborted' and row[F.transaction_id] ~= nil then
                transactions.drop_upload(row[F.transaction_id], id)
            end
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

-- A new session of a producer: its epoch fences all older ones, whose open uploads are aborted; stored ones stay. The
-- transaction that an older one was in is aborting then, and the answer names it. `headers`, if any, go with all its
-- messages.
function M.start_producer(subject, producer_id, put_grace, headers)
    local fenced
    local row = txn.run(function()
        local owner = producer.ensure(subjects.ensure(subject), producer_id)
        fenced = transactions.fence_producer(owner)
        return producer.next_epoch(owner, headers)
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
    local owner = producer.find(subject, producer_id) -- nil when the subject was deleted meanwhile
    return {producer_id = producer_id, epoch = row[P.epoch], last_seqno = owner and owner[P.last_seqno],
        transaction_id = fenced}
end

-- Goes on freeing a chain that was too long for one transaction, to its end.
function M.resume(id, put_grace)
    while id ~= nil do
        id = txn.run(function(effects)
            local row = box.space.upload:get(id)
            if row == nil or row[F.state] ~= 'stored' then
                return nil
            end
            box.space.upload:update(id, {{'=', F.due_at, schema.NEVER}})
            return free_waiting(effects, row[F.producer_no], put_grace)
        end)
    end
    return true
end

return M
