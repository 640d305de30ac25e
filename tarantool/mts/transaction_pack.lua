-- Frames of a pack that are published in a transaction: they wait as uploads in `stored` that point into the pack. A
-- run of frames that name neither producer nor key is one upload, so that a batch costs one row.
local clock = require('mts.clock')
local errors = require('mts.errors')
local idempotency = require('mts.idempotency')
local producer = require('mts.producer')
local quota = require('mts.quota')
local schema = require('mts.schema')
local settings = require('mts.subject_settings')
local subjects = require('mts.subject')
local transactions = require('mts.transaction')
local upload = require('mts.upload')

local I, P, S, U = schema.transaction_item, schema.producer, schema.subject, schema.upload
local M = {}

local NOBODY = {}

local function marks_of(group)
    local marks = {}
    for _, mark in ipairs(schema.present(group.marks) or {}) do
        marks[mark.index] = mark
    end
    return marks
end

-- From the frame `first` on, which lies at `position`; `own_at`: where to look for its headers.
local function new_walk(pack, group, marks, first, position, own_at)
    local id = group.transaction_id
    transactions.need_open(id)
    local subject_row = subjects.ensure(group.subject)
    return {id = id, pack = pack, group = group, subject_row = subject_row, marks = marks, first = first,
        position = position, run_from = position, own_at = own_at, messages = 0, refs = 0,
        codec = settings.codec(subject_row, group.codec), room = quota.room(subject_row), staged = schema.array{},
        others = schema.array{}}
end

-- Own headers of frames from..upto-1, counted from the first of them.
local function own_of(walk, from, upto)
    local own, part = schema.present(walk.group.own) or {}, {}
    while own[walk.own_at] and own[walk.own_at][1] < upto do
        local entry = own[walk.own_at]
        if entry[1] >= from then
            table.insert(part, {entry[1] - from, entry[2], entry[3]})
        end
        walk.own_at = walk.own_at + 1
    end
    return part
end

-- Frames from..upto-1, which begin at `byte_from`, become one upload.
local function store(walk, from, upto, byte_from, mark, owner)
    local group, count, sizes, bytes, now = walk.group, upto - from, {}, 0, clock.seconds()
    for i = from + 1, upto do
        table.insert(sizes, group.sizes[i])
        bytes = bytes + group.sizes[i]
    end
    local own = own_of(walk, from, upto)
    local headers = group.headers
    local content_type = schema.present(group.content_type) or 'application/octet-stream'
    if count == 1 and own[1] then
        headers, content_type = schema.present(own[1][2]) or headers, schema.present(own[1][3]) or content_type
    end
    if owner then
        headers = producer.merged_headers(producer.session_headers(owner, mark.epoch), headers)
    end
    if walk.room then
        walk.room:take(count, bytes)
        walk.room:reserve(count, bytes)
    end
    walk.messages = walk.messages + count
    local row = box.space.upload:insert{clock.new_id(), group.subject, walk.subject_row[S.incarnation], 'stored',
        bytes, content_type, box.NULL, headers, mark.producer_id or box.NULL, owner and owner[P.no] or box.NULL,
        mark.seqno or box.NULL, owner and owner[P.epoch] or box.NULL, count > 1 and sizes or box.NULL, now, now,
        schema.NEVER, 0, box.NULL, box.NULL, 0, walk.pack.object_name, byte_from, box.NULL, box.NULL,
        mark.group or box.NULL, mark.hash or box.NULL, walk.codec or box.NULL, walk.id, walk.room and true or box.NULL,
        count > 1 and #own > 0 and own or box.NULL}
    walk.refs = walk.refs + 1
    table.insert(walk.staged, {from, count, row[U.id]})
    return row
end

local function close_run(walk, upto)
    if walk.first < upto then
        local row = store(walk, walk.first, upto, walk.run_from, walk.run_mark)
        transactions.add_upload(walk.id, row[U.id])
    end
    walk.first, walk.run_from, walk.run_mark = upto, walk.position, nil
end

local function answered(walk, index, receipt)
    receipt.index = index
    table.insert(walk.others, receipt)
end

local function stage_producer(walk, index, mark)
    local owner = producer.ensure(walk.subject_row, mark.producer_id)
    producer.check_epoch(owner, mark.epoch)
    local sequence = producer.stored_sequence(owner, mark.seqno)
    if sequence then
        answered(walk, index, upload.add_place({state = 'committed', duplicate = true}, sequence))
        return
    end
    transactions.check_producer(owner, walk.id)
    local pending = producer.pending(owner[P.no], mark.seqno)
    if pending then
        local row = box.space.upload:get(pending)
        if row[U.byte_from] == nil or row[U.size] ~= walk.group.sizes[index + 1] then
            errors.refuse('seqno_in_use', 'this seqno is announced by an upload: complete or abort that first',
                {upload_id = pending})
        end
        answered(walk, index, upload.receipt(row)) -- sent again
        return
    end
    local row = store(walk, index, index + 1, walk.position, mark, owner)
    producer.add_pending(owner[P.no], mark.seqno, row[U.id])
    transactions.enter_producer(owner, walk.id)
    transactions.add_upload(walk.id, row[U.id])
end

local function stage_key(walk, index, mark)
    local sequence = idempotency.stored_sequence(walk.subject_row, mark.key, mark.digest)
    if sequence then
        answered(walk, index, upload.add_place({state = 'committed', duplicate = true}, sequence))
        return
    end
    local key = ('key/%s/%s'):format(tostring(walk.subject_row[S.incarnation]):match('^%d+'), mark.key)
    local item = transactions.find(walk.id, key)
    if item == nil then
        transactions.add_upload(walk.id, store(walk, index, index + 1, walk.position, mark)[U.id], mark, key)
        return
    end
    if item[I.data][3] ~= mark.digest then
        errors.refuse('idempotency_conflict', 'this Idempotency-Key was used for another message: take a new one',
            {key = mark.key})
    end
    answered(walk, index, upload.receipt(box.space.upload:get(item[I.data][1]))) -- sent again
end

local function stage_frame(walk, index)
    local mark = walk.marks[index] or NOBODY
    settings.check_id('group', schema.present(mark.group) or '')
    local size = walk.group.sizes[index + 1] + schema.FRAME_PREFIX
    if mark.producer_id ~= nil or mark.key ~= nil then
        close_run(walk, index)
        local stage = mark.producer_id ~= nil and stage_producer or stage_key
        stage(walk, index, mark)
        walk.position = walk.position + size
        walk.first, walk.run_from = index + 1, walk.position
        return
    end
    if walk.run_mark and walk.run_mark.group ~= mark.group then -- where a group goes is known at the commit
        close_run(walk, index)
    end
    walk.run_mark = walk.run_mark or mark
    walk.position = walk.position + size
end

-- Stage frames from..upto-1 or refuse; `...` as for a new walk.
local function stage(pack, group, upto, marks, from, ...)
    local walk = new_walk(pack, group, marks, from, ...)
    for index = from, upto - 1 do
        stage_frame(walk, index)
    end
    close_run(walk, upto)
    quota.pass(walk.subject_row, walk.messages)
    return walk
end

-- The walk, or nil and the refusal, which leaves nothing behind.
local function try(...)
    local before = box.savepoint()
    local ok, walk = pcall(stage, ...)
    if ok then
        return walk
    end
    if not errors.is_refusal(walk) then
        error(walk, 0)
    end
    box.rollback_to_savepoint(before)
    return nil, errors.describe(walk)
end

-- Stage the frames of a group, all or none, inside the transaction that records the pack. `staged` is
-- {{first index, count, upload_id}, ...}, `others` are frames that got another answer, `error` is why there are none.
function M.stage(pack, group)
    local walk, refused = try(pack, group, #group.sizes, marks_of(group), 0, group.byte_from, 1)
    if refused then
        return {error = refused}, 0
    end
    return {staged = walk.staged, others = walk.others, runs = schema.array{}}, walk.refs
end

-- The same, each frame for itself: the refusal of one is its answer in `others`, and concerns no other.
function M.stage_each(pack, group)
    local staged, others, refs = schema.array{}, schema.array{}, 0
    local marks, position, own_at = marks_of(group), group.byte_from, 1
    for index = 0, #group.sizes - 1 do
        local walk, refused = try(pack, group, index + 1, marks, index, position, own_at)
        if refused then
            table.insert(others, {index = index, error = refused})
        else
            table.insert(staged, walk.staged[1])
            table.insert(others, walk.others[1])
            refs, own_at = refs + walk.refs, walk.own_at
        end
        position = position + group.sizes[index + 1] + schema.FRAME_PREFIX
    end
    return {staged = staged, others = others, runs = schema.array{}}, refs
end

return M
