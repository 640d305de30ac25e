-- Uploads as rows: made by a ticket, read by a receipt, extended by arriving parts.
local clock = require('mts.clock')
local errors = require('mts.errors')
local message = require('mts.message')
local object = require('mts.object')
local producer = require('mts.producer')
local quota = require('mts.quota')
local schema = require('mts.schema')
local settings = require('mts.subject_settings')
local subjects = require('mts.subject')
local transactions = require('mts.transaction')
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
        parts_seen = row[F.parts_seen], byte_from = row[F.byte_from], group = row[F.group], codec = row[F.codec]}
end

-- What became of it. Whoever has just committed it knows its place.
function M.receipt(row, duplicate, partition, offset)
    local receipt = {upload_id = row[F.id], state = row[F.state], reason = row[F.reason], duplicate = duplicate}
    if offset then
        receipt.sequence, receipt.partition, receipt.offset = row[F.sequence], partition, offset
    elseif row[F.state] == 'committed' then
        M.add_place(receipt, row[F.sequence])
    elseif row[F.state] == 'stored' and row[F.transaction_id] ~= nil then
        receipt.transaction_id = row[F.transaction_id]
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

-- An object is there for an upload that has ended: nothing may point at it, or it goes. A dead letter may point at it
-- when the message of the upload is gone. A frame of a pack has no object of its own: the pack is its neighbours' too.
function M.discard_late(row)
    local name = M.object_name(row)
    if row[F.byte_from] == nil and not message.points_at(row[F.sequence], name) and not object.is_referred(name) then
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

-- Has the first table every entry of the second? One that is null has none.
local function contains(one, other)
    one = schema.present(one) or {}
    for key, value in pairs(schema.present(other) or {}) do
        if one[key] ~= value then
            return false
        end
    end
    return true
end

local function same_entries(one, other)
    return contains(one, other) and contains(other, one)
end

local function headers_of(spec, owner)
    return producer.merged_headers(owner and producer.session_headers(owner, spec.epoch), spec.headers)
end

-- One that waits since an earlier session keeps the headers of that session beside its own.
local function same_headers(row, spec, owner)
    return same_entries(row[F.headers], headers_of(spec, owner))
        or (owner and row[F.epoch] ~= owner[P.epoch] and contains(row[F.headers], spec.headers))
end

-- In what an announcement differs from the first one of its seqno; nil when they are the same.
local function difference(row, spec, owner)
    for _, name in ipairs{'size', 'content_type', 'sha256', 'group'} do
        if row[F[name]] ~= spec[name] then
            return name
        end
    end
    if (schema.present(row[F.codec]) or 'raw') ~= (schema.present(spec.codec) or 'raw') then
        return 'codec'
    end
    if not same_headers(row, spec, owner) then
        return 'headers'
    end
    return not same_entries(row[F.sizes], spec.sizes) and 'sizes' or nil
end

-- How many messages a payload holds, and how many bytes of theirs.
function M.amount(sizes, size)
    if sizes == nil then
        return 1, size
    end
    local bytes = 0
    for _, one in ipairs(sizes) do
        bytes = bytes + one
    end
    return #sizes, bytes
end

-- By which an announcement that is sent again finds its upload in the transaction.
local function announced_key(subject_row, spec)
    return spec.key ~= nil and ('announced/%s/%s'):format(
        tostring(subject_row[schema.subject.incarnation]):match('^%d+'), spec.key) or nil
end

-- `desk` is what one call asks of a subject: its row, the room in its quotas, and how many messages were let in.
local function insert(desk, spec, owner, times)
    local now, subject_row = clock.seconds(), desk.subject_row
    local incarnation = subject_row[schema.subject.incarnation]
    local life = owner and times.producer_life or times.life
    local codec = settings.codec(subject_row, spec.codec)
    settings.check_id('group', schema.present(spec.group) or '')
    local messages, bytes = M.amount(spec.sizes, spec.size)
    if desk.room then
        desk.room:take(messages, bytes)
        desk.room:reserve(messages, bytes)
    end
    desk.messages = desk.messages + messages
    local row = box.space.upload:insert{clock.new_id(), subject_row[schema.subject.name], incarnation, 'open',
        spec.size, spec.content_type, spec.sha256 or box.NULL, headers_of(spec, owner), spec.producer_id or box.NULL,
        owner and owner[P.no] or box.NULL, spec.seqno or box.NULL, owner and owner[P.epoch] or box.NULL,
        spec.sizes or box.NULL, now, now + life, now + times.first_look, 0, box.NULL, spec.part_size or box.NULL, 0,
        box.NULL, box.NULL, box.NULL, box.NULL, spec.group or box.NULL, spec.hash or box.NULL, codec or box.NULL,
        spec.transaction_id or box.NULL, desk.room and true or box.NULL}
    if owner then
        producer.add_pending(owner[P.no], spec.seqno, row[F.id])
    end
    if spec.transaction_id ~= nil then
        transactions.add_upload(spec.transaction_id, row[F.id], nil, announced_key(subject_row, spec))
        if owner then
            transactions.enter_producer(owner, spec.transaction_id)
        end
    end
    return {upload = M.describe(row)}
end

-- Until when a ticket that is extended now is good: by its kind's life, up to `max_life` from its creation. Never
-- shortened: what was signed before stays valid as long as it says.
function M.extended(row, times)
    local life = row[F.producer_no] ~= nil and times.producer_life or times.life
    return math.max(row[F.expires_at], math.min(clock.seconds() + life, row[F.created_at] + times.max_life))
end

local function prolong(row, times)
    local until_ = M.extended(row, times)
    return until_ == row[F.expires_at] and row or box.space.upload:update(row[F.id], {{'=', F.expires_at, until_}})
end

local function reopen(row, spec, owner, times)
    local other = difference(row, spec, owner)
    if other then
        errors.refuse('upload_conflict', ('this %s is announced already with other `%s`')
            :format(owner and 'seqno' or 'key', other), {upload_id = row[F.id], seqno = spec.seqno, field = other})
    end
    if row[F.state] ~= 'open' then
        return {receipt = M.receipt(row)}
    end
    return {upload = M.describe(prolong(row, times))}
end

local function create_one(desk, spec, times)
    if spec.transaction_id ~= nil then
        transactions.need_open(spec.transaction_id)
        local key = announced_key(desk.subject_row, spec)
        local item = key and transactions.find(spec.transaction_id, key)
        if item then
            return reopen(box.space.upload:get(item[schema.transaction_item.data][1]), spec, nil, times)
        end
    end
    if spec.producer_id == nil then
        return insert(desk, spec, nil, times)
    end
    local owner = producer.ensure(desk.subject_row, spec.producer_id)
    producer.check_epoch(owner, spec.epoch)
    local sequence = producer.stored_sequence(owner, spec.seqno)
    if sequence then
        return {receipt = M.add_place({state = 'committed', duplicate = true}, sequence)}
    end
    transactions.check_producer(owner, schema.present(spec.transaction_id))
    local pending = producer.pending(owner[P.no], spec.seqno)
    if pending then
        return reopen(box.space.upload:get(pending), spec, owner, times)
    end
    return insert(desk, spec, owner, times)
end

-- Tickets for all specs, or for none: {upload=...} to sign, or {receipt=...} where the seqno is known already.
function M.create(subject, specs, times)
    return txn.run(function()
        local subject_row = subjects.ensure(subject)
        local desk, results = {subject_row = subject_row, room = quota.room(subject_row), messages = 0}, {}
        for _, spec in ipairs(specs) do
            table.insert(results, create_one(desk, spec, times))
        end
        quota.pass(subject_row, desk.messages)
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

-- Remember the store's multipart id; the first one counts, and is what comes back. `lost`: one that the store no longer
-- knows, to be replaced.
function M.set_multipart(id, multipart_id, lost)
    return txn.run(function()
        local row = open_row(id)
        if row[F.multipart_id] == nil or row[F.multipart_id] == lost then
            row = box.space.upload:update(id, {{'=', F.multipart_id, multipart_id}, {'=', F.parts_seen, 0}})
        end
        return M.describe(row)
    end)
end

-- Signing parts again extends a ticket.
function M.extend(id, times)
    return txn.run(function()
        return M.describe(prolong(open_row(id), times))
    end)
end

return M
