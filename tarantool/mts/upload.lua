-- Uploads as rows: made by a ticket, read by a receipt, extended by arriving parts.
local clock = require('mts.clock')
local errors = require('mts.errors')
local message = require('mts.message')
local object = require('mts.object')
local producer = require('mts.producer')
local schema = require('mts.schema')
local subjects = require('mts.subject')
local txn = require('mts.txn')

local F, P = schema.upload, schema.producer
local M = {}

function M.object_name(row)
    return schema.present(row[F.object_name]) or object.payload_name(row[F.subject], row[F.incarnation], row[F.id])
end

-- What the service layer knows of an upload.
function M.describe(row)
    return {id = row[F.id], subject = row[F.subject], object_name = M.object_name(row), state = row[F.state],
        size = row[F.size], content_type = row[F.content_type], sha256 = row[F.sha256],
        producer_id = row[F.producer_id], seqno = row[F.seqno], created_at = row[F.created_at],
        expires_at = row[F.expires_at], multipart_id = row[F.multipart_id], part_size = row[F.part_size],
        parts_seen = row[F.parts_seen], byte_from = row[F.byte_from]}
end

-- What became of it.
function M.receipt(row, duplicate)
    local receipt = {upload_id = row[F.id], state = row[F.state], reason = row[F.reason], duplicate = duplicate}
    if row[F.state] == 'committed' then
        M.add_place(receipt, row[F.sequence])
    elseif row[F.state] == 'stored' then
        local first = producer.first_pending(row[F.producer_no])
        receipt.waits_for = first and first.upload_id
    end
    return receipt
end

-- A receipt for a sequence that is known to be stored; partition and offset only while its row is there.
function M.add_place(receipt, sequence)
    receipt.sequence = sequence
    local row, index = message.locate(sequence)
    if row then
        receipt.partition, receipt.offset = message.place(row, index)
    end
    return receipt
end

-- An object is there for an upload that has ended: nothing may point at it, or it goes. A frame of a pack has no
-- object of its own: the pack is its neighbours' too.
function M.discard_late(row)
    local name = M.object_name(row)
    if row[F.byte_from] == nil and not message.points_at(row[F.sequence], name) then
        object.discard(name, 'late_payload', row[F.part_size] ~= nil)
    end
end

function M.get(id)
    return txn.run(function()
        local row = box.space.upload:get(id)
        if row == nil then
            return box.NULL
        end
        return {upload = M.describe(row), receipt = M.receipt(row)}
    end)
end

local function same_announcement(row, spec)
    return row[F.size] == spec.size and row[F.sha256] == spec.sha256 and row[F.content_type] == spec.content_type
end

local function insert(subject_row, spec, owner, times)
    local now = clock.seconds()
    local incarnation = subject_row[schema.subject.incarnation]
    local life = owner and times.producer_life or times.life
    local row = box.space.upload:insert{clock.new_id(), subject_row[schema.subject.name], incarnation, 'open',
        spec.size, spec.content_type, spec.sha256 or box.NULL, spec.headers, spec.producer_id or box.NULL,
        owner and owner[P.no] or box.NULL, spec.seqno or box.NULL, owner and owner[P.epoch] or box.NULL,
        spec.sizes or box.NULL, now, now + life, now + times.first_look, 0, box.NULL, spec.part_size or box.NULL, 0,
        box.NULL, box.NULL, box.NULL, box.NULL}
    if owner then
        producer.add_pending(owner[P.no], spec.seqno, row[F.id])
    end
    return {upload = M.describe(row)}
end

-- Never shortened: what was signed before stays valid as long as it says.
local function prolong(row, life, max_life)
    local until_ = math.min(clock.seconds() + life, row[F.created_at] + max_life)
    if until_ <= row[F.expires_at] then
        return row
    end
    return box.space.upload:update(row[F.id], {{'=', F.expires_at, until_}})
end

local function reopen(row, spec, times)
    if not same_announcement(row, spec) then
        errors.refuse('upload_conflict', 'this seqno is announced already with another size, type or checksum',
            {upload_id = row[F.id], seqno = spec.seqno})
    end
    if row[F.state] == 'stored' then
        return {receipt = M.receipt(row)}
    end
    return {upload = M.describe(prolong(row, times.producer_life, times.max_life))}
end

local function create_one(subject_row, spec, times)
    if spec.producer_id == nil then
        return insert(subject_row, spec, nil, times)
    end
    local owner = producer.ensure(subject_row, spec.producer_id)
    producer.check_epoch(owner, spec.epoch)
    local sequence = producer.stored_sequence(owner, spec.seqno)
    if sequence then
        return {receipt = M.add_place({state = 'committed', duplicate = true}, sequence)}
    end
    local pending = producer.pending(owner[P.no], spec.seqno)
    if pending then
        return reopen(box.space.upload:get(pending), spec, times)
    end
    return insert(subject_row, spec, owner, times)
end

-- Tickets for all specs, or for none: {upload=...} to sign, or {receipt=...} where the seqno is known already.
function M.create(subject, specs, times)
    return txn.run(function()
        local subject_row = subjects.ensure(subject)
        local results = {}
        for _, spec in ipairs(specs) do
            table.insert(results, create_one(subject_row, spec, times))
        end
        return results
    end)
end

local function open_row(id)
    local row = box.space.upload:get(id)
    if row == nil then
        errors.refuse('not_found', 'there is no such upload; it may have ended long ago', {upload_id = id})
    end
    if row[F.state] ~= 'open' then
        errors.refuse('upload_final', 'this upload is no longer open', {upload_id = id, state = row[F.state]})
    end
    return row
end

-- Remember the store's multipart id; the first one counts, and is what comes back.
function M.set_multipart(id, multipart_id)
    return txn.run(function()
        local row = open_row(id)
        if row[F.multipart_id] == nil then
            row = box.space.upload:update(id, {{'=', F.multipart_id, multipart_id}})
        end
        return M.describe(row)
    end)
end

-- Signing parts again, or parts that arrived, extend a ticket by `life`, up to `max_life` from its creation.
function M.extend(id, life, max_life)
    return txn.run(function()
        return M.describe(prolong(open_row(id), life, max_life))
    end)
end

return M
