-- What becomes of a frame of a pack: it joins the run, is a duplicate, waits behind an earlier seqno, or is refused.
local clock = require('mts.clock')
local errors = require('mts.errors')
local idempotency = require('mts.idempotency')
local producer = require('mts.producer')
local quota = require('mts.quota')
local runs = require('mts.pack_run')
local schema = require('mts.schema')
local settings = require('mts.subject_settings')
local transactions = require('mts.transaction')
local upload = require('mts.upload')

local P, U = schema.producer, schema.upload
local M = {}

local function duplicate(sequence)
    return upload.add_place({state = 'committed', duplicate = true}, sequence)
end

local function own_entry(walk, index)
    for _, entry in ipairs(schema.present(walk.group.own) or {}) do
        if entry[1] == index then
            return entry
        end
    end
end

-- Refuses a frame that its subject does not take. The later frames of its producer are refused with it: stored, they
-- would make its seqno one that was passed over.
local function admit(walk, index, mark)
    local producer_id = mark and mark.producer_id
    local name = producer_id ~= nil and walk.group.subject .. '\0' .. producer_id
    local refused = walk.effects.blocked[name]
    if refused then
        error(refused, 0)
    end
    local ok, refusal = pcall(function()
        if walk.codec_refusal then
            error(walk.codec_refusal, 0)
        end
        if walk.room then
            walk.room:take(1, walk.group.sizes[index + 1])
        end
        if walk.has_rate then
            quota.pass(walk.subject_row, 1)
        end
    end)
    if not ok then
        walk.effects.blocked[name] = name and refusal or nil
        error(refusal, 0)
    end
end

-- Is there anything that a frame may be refused for? The refusal of another group's frame holds for its producer.
local function is_limited(walk)
    return walk.is_limited or next(walk.effects.blocked) ~= nil
end

-- A frame behind an earlier seqno that is still open: it waits as an upload in `stored` that points into the pack.
local function store_waiting(walk, index, mark, owner)
    if is_limited(walk) then
        admit(walk, index, mark)
    end
    local group, own, now = walk.group, own_entry(walk, index), clock.seconds()
    local id, size = clock.new_id(), group.sizes[index + 1]
    local incarnation = runs.subject_row(walk)[schema.subject.incarnation]
    if walk.room then
        walk.room:reserve(1, size)
    end
    box.space.upload:insert{id, group.subject, incarnation, 'stored', size,
        own and schema.present(own[3]) or schema.present(group.content_type) or 'application/octet-stream', box.NULL,
        producer.merged_headers(runs.session_headers(walk, mark), own and schema.present(own[2]) or group.headers),
        mark.producer_id, owner[P.no], mark.seqno, owner[P.epoch], box.NULL, now, now, schema.NEVER, 0, box.NULL,
        box.NULL, 0, walk.pack.object_name, walk.position, box.NULL, box.NULL, mark.group or box.NULL,
        mark.hash or box.NULL, walk.codec or box.NULL, box.NULL, walk.room and true or box.NULL}
    producer.add_pending(owner[P.no], mark.seqno, id)
    walk.refs = walk.refs + 1
    return upload.receipt(box.space.upload:get(id))
end

-- nil when the frame may join the run; otherwise what to answer for it.
local function judge_producer(walk, index, mark)
    local owner = walk.subject_row and producer.of(walk.subject_row, mark.producer_id)
    producer.check_epoch(owner, mark.epoch)
    owner = owner or producer.ensure(runs.subject_row(walk), mark.producer_id)
    if owner[P.last_seqno] ~= nil and mark.seqno <= owner[P.last_seqno] then
        return duplicate(producer.stored_sequence(owner, mark.seqno))
    end
    transactions.check_producer(owner, nil)
    local pending = producer.pending(owner[P.no], mark.seqno)
    if pending then
        local row = box.space.upload:get(pending)
        if row[U.state] == 'stored' and row[U.byte_from] ~= nil and row[U.size] == walk.group.sizes[index + 1] then
            return upload.receipt(row) -- sent again while it waits
        end
        errors.refuse('seqno_in_use', 'this seqno is announced by an upload: complete or abort that first',
            {upload_id = pending})
    end
    local first = producer.first_pending(owner[P.no])
    if first and first.seqno < mark.seqno then
        return store_waiting(walk, index, mark, owner)
    end
    return nil
end

local function judge_key(walk, mark)
    local sequence = walk.subject_row and idempotency.stored_sequence(walk.subject_row, mark.key, mark.digest)
    return sequence and duplicate(sequence)
end

local function verdict(walk, index, mark)
    if mark then
        settings.check_id('group', schema.present(mark.group) or '')
        local result
        if mark.producer_id ~= nil then
            result = judge_producer(walk, index, mark)
        elseif mark.key ~= nil then
            result = judge_key(walk, mark)
        end
        if result then
            return result
        end
    end
    if is_limited(walk) then
        admit(walk, index, mark)
    end
end

-- The answer for a frame; nil when it may join the run.
function M.judge(walk, index, mark)
    if runs.has_name(mark) and runs.repeats(walk, mark) then
        runs.close(walk, index)
        runs.repeats(walk, mark)
    end
    local ok, result = pcall(verdict, walk, index, mark)
    if ok then
        return result
    end
    if not errors.is_refusal(result) then
        error(result, 0)
    end
    return {error = errors.describe(result)}
end

return M
