-- A pack: many small messages in one object, committed together. Each group of consecutive frames of one subject
-- becomes an extent; a frame that is a duplicate or must wait ends the extent before it.
local clock = require('mts.clock')
local commit = require('mts.commit')
local errors = require('mts.errors')
local idempotency = require('mts.idempotency')
local object = require('mts.object')
local producer = require('mts.producer')
local schema = require('mts.schema')
local subjects = require('mts.subject')
local txn = require('mts.txn')
local upload = require('mts.upload')

local P, U = schema.producer, schema.upload
local M = {}

local function array(values)
    return setmetatable(values, {__serialize = 'array'})
end

-- The walk over one group's frames. `first` is the index of the run that has not been appended yet.
local function new_walk(effects, pack, group)
    local walk = {effects = effects, pack = pack, group = group, first = 0, position = group.byte_from,
        run_from = group.byte_from, run_size = 0, open_marks = {}, open_keys = {}, refs = 0,
        runs = array{}, others = array{}, own_at = 1}
    walk.marks = {}
    for _, mark in ipairs(schema.present(group.marks) or {}) do
        walk.marks[mark.index] = mark
    end
    return walk
end

-- Made when something of it is stored: what is refused leaves no subject behind.
local function subject_row(walk)
    walk.subject_row = walk.subject_row or subjects.ensure(walk.group.subject)
    return walk.subject_row
end

local function own_of_run(walk, upto)
    local own, part = schema.present(walk.group.own) or {}, {}
    while own[walk.own_at] and own[walk.own_at][1] < upto do
        local entry = own[walk.own_at]
        if entry[1] >= walk.first then
            table.insert(part, {entry[1] - walk.first, entry[2], entry[3]})
        end
        walk.own_at = walk.own_at + 1
    end
    return #part > 0 and part or nil
end

-- Append frames first..upto-1 as one extent, and remember what their marks ask for.
local function close_run(walk, upto)
    local count = upto - walk.first
    if count == 0 then
        return
    end
    local group, sizes = walk.group, nil
    subject_row(walk)
    if count > 1 then
        sizes = {}
        for i = walk.first + 1, upto do
            table.insert(sizes, group.sizes[i])
        end
    end
    local last, last_offset = commit.append(walk.effects, group.subject, 0, {
        headers = group.headers, object_name = walk.pack.object_name, count = count, size = walk.run_size,
        byte_from = walk.run_from, sizes = sizes, own = own_of_run(walk, upto), content_type = group.content_type})
    local sequence = last - count + 1
    for _, mark in ipairs(walk.open_marks) do
        local own_sequence = sequence + (mark.index - walk.first)
        if mark.producer_id ~= nil then
            producer.record(group.subject, mark.producer_id, mark.seqno, own_sequence)
        else
            idempotency.record(walk.effects, subject_row(walk), mark.key, mark.digest, own_sequence)
        end
    end
    table.insert(walk.runs, {walk.first, count, sequence, 0, last_offset - count + 1})
    walk.refs = walk.refs + 1
    walk.first, walk.run_from, walk.run_size = upto, walk.position, 0
    walk.open_marks, walk.open_keys = {}, {}
end

-- Leave frame `index` out of the extents: what was before it is appended, and the next run starts behind it.
local function skip(walk, index, result)
    close_run(walk, index)
    result.index = index
    table.insert(walk.others, result)
    walk.first = index + 1
    walk.run_from = walk.position + walk.group.sizes[index + 1] + schema.FRAME_PREFIX
end

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

-- A frame behind an earlier seqno that is still open: it waits as an upload in `stored` that points into the pack.
local function store_waiting(walk, index, mark, owner)
    local group, own, now = walk.group, own_entry(walk, index), clock.seconds()
    local id = clock.new_id()
    local incarnation = subject_row(walk)[schema.subject.incarnation]
    box.space.upload:insert{id, group.subject, incarnation, 'stored', group.sizes[index + 1],
        own and schema.present(own[3]) or schema.present(group.content_type) or 'application/octet-stream', box.NULL,
        own and schema.present(own[2]) or group.headers, mark.producer_id, owner[P.no], mark.seqno, owner[P.epoch],
        box.NULL, now, now, schema.NEVER, 0, box.NULL, box.NULL, 0, walk.pack.object_name, walk.position, box.NULL,
        box.NULL}
    producer.add_pending(owner[P.no], mark.seqno, id)
    walk.refs = walk.refs + 1
    return upload.receipt(box.space.upload:get(id))
end

-- nil when the frame may join the run; otherwise what to answer for it.
local function judge_producer(walk, index, mark)
    producer.check_epoch(producer.find(walk.group.subject, mark.producer_id), mark.epoch)
    local owner = producer.ensure(subject_row(walk), mark.producer_id)
    if owner[P.last_seqno] ~= nil and mark.seqno <= owner[P.last_seqno] then
        return duplicate(producer.stored_sequence(owner, mark.seqno))
    end
    local pending = producer.pending(owner[P.no], mark.seqno)
    if pending then
        local row = box.space.upload:get(pending)
        if row[U.state] == 'stored' and row[U.byte_from] ~= nil and row[U.size] == walk.group.sizes[index + 1] then
            return upload.receipt(row) -- sent again while it waits
        end
        errors.refuse('seqno_in_use', 'this seqno is announced by an upload that has not ended', {upload_id = pending})
    end
    local first = producer.first_pending(owner[P.no])
    if first and first.seqno < mark.seqno then
        return store_waiting(walk, index, mark, owner)
    end
    return nil
end

local function judge_key(walk, _, mark)
    local known = subjects.find(walk.group.subject)
    local sequence = known and idempotency.stored_sequence(known, mark.key, mark.digest)
    return sequence and duplicate(sequence)
end

-- A mark that an earlier frame of the same run may answer must be judged after that frame is stored: a key given
-- again, or a seqno that does not go up.
local function repeats_in_run(walk, mark)
    local name = mark.producer_id ~= nil and 'p' .. mark.producer_id or 'k' .. mark.key
    local before = walk.open_keys[name]
    walk.open_keys[name] = mark.seqno or 0
    return before ~= nil and (mark.producer_id == nil or mark.seqno <= before)
end

local function judge(walk, index, mark)
    if repeats_in_run(walk, mark) then
        close_run(walk, index)
        repeats_in_run(walk, mark)
    end
    local ok, result = pcall(mark.producer_id ~= nil and judge_producer or judge_key, walk, index, mark)
    if ok then
        return result
    end
    if not errors.is_refusal(result) then
        error(result, 0)
    end
    return {error = errors.describe(result)}
end

local function commit_group(effects, pack, group)
    local walk = new_walk(effects, pack, group)
    for index = 0, #group.sizes - 1 do
        local size = group.sizes[index + 1]
        local mark = walk.marks[index]
        local result = mark and judge(walk, index, mark)
        if result then
            skip(walk, index, result)
        else
            walk.run_size = walk.run_size + size
            if mark then
                table.insert(walk.open_marks, mark)
            end
        end
        walk.position = walk.position + size + schema.FRAME_PREFIX
    end
    close_run(walk, #group.sizes)
    return walk
end

-- Commit a pack {object_name, groups = {{subject, headers, content_type, byte_from, sizes, own, marks}, ...}} that
-- is in the bucket. For each group: `runs` {{first index, count, sequence, partition, offset}, ...} and `others`,
-- the frames that got another answer. A pack older than half of the grace is refused: it may be in the trash soon.
function M.commit(pack, grace)
    local results = txn.run(function(effects)
        local age = clock.milliseconds() - clock.id_time(pack.object_name:match('([^/]+)$'))
        if age > grace * 500 or object.in_trash(pack.object_name) then
            if box.space.object:get(pack.object_name) == nil then
                object.discard(pack.object_name, 'old_pack')
            end
            return nil
        end
        local refs, answers = 0, {}
        for _, group in ipairs(pack.groups) do
            local walk = commit_group(effects, pack, group)
            refs = refs + walk.refs
            table.insert(answers, {runs = walk.runs, others = walk.others})
        end
        object.create(pack.object_name, refs)
        return answers
    end)
    if results == nil then
        errors.refuse('unavailable', 'this took too long and was given up; send it again')
    end
    return results
end

return M
