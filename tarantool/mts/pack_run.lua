-- The walk over one group's frames of a pack, and the run of frames that becomes the next extent: one partition, the
-- headers of one session, no gap.
local commit = require('mts.commit')
local idempotency = require('mts.idempotency')
local partitions = require('mts.partition')
local producer = require('mts.producer')
local quota = require('mts.quota')
local schema = require('mts.schema')
local settings = require('mts.subject_settings')
local subjects = require('mts.subject')

local M = {}

-- What a subject asks of a group's frames before they are stored: its codec, room in its quotas, its rate. Most ask
-- nothing, and their frames are not looked at one by one.
local function find_limits(walk)
    local known = walk.subject_row
    local allowed, codec = pcall(settings.codec, known, walk.group.codec)
    if allowed then
        walk.codec = codec
    else
        walk.codec_refusal = codec
    end
    walk.room = known and quota.room(known)
    walk.has_rate = known and quota.has_rate(known)
    walk.is_limited = walk.codec_refusal or walk.room or walk.has_rate
end

-- The walk over one group's frames. `first` is the index of the run that has not been appended yet.
function M.new(effects, pack, group)
    local walk = {effects = effects, pack = pack, group = group, first = 0, position = group.byte_from,
        run_from = group.byte_from, run_size = 0, open_marks = {}, open_keys = {}, refs = 0,
        runs = schema.array{}, others = schema.array{}, own_at = 1, sessions = {},
        subject_row = subjects.find(group.subject)}
    walk.marks = {}
    for _, mark in ipairs(schema.present(group.marks) or {}) do
        walk.marks[mark.index] = mark
    end
    find_limits(walk)
    return walk
end

-- Made when something of it is stored: what is refused leaves no subject behind.
function M.subject_row(walk)
    walk.subject_row = walk.subject_row or subjects.ensure(walk.group.subject)
    return walk.subject_row
end

-- Headers of the session that a frame names, or nil; asked once a producer.
function M.session_headers(walk, mark)
    if mark.producer_id == nil or mark.epoch == nil then
        return nil
    end
    local known = walk.sessions[mark.producer_id]
    if known == nil then
        known = producer.session_headers(producer.of(M.subject_row(walk), mark.producer_id), mark.epoch) or false
        walk.sessions[mark.producer_id] = known
    end
    return known or nil
end

local function own_of_run(walk, upto)
    local own, part = schema.present(walk.group.own) or {}, {}
    while own[walk.own_at] and own[walk.own_at][1] < upto do
        local entry = own[walk.own_at]
        if entry[1] >= walk.first then
            local headers = schema.present(entry[2])
            table.insert(part, {entry[1] - walk.first,
                headers and producer.merged_headers(walk.run_headers, headers) or box.NULL, entry[3]})
        end
        walk.own_at = walk.own_at + 1
    end
    return #part > 0 and part or nil
end

-- Remember the seqnos and keys of a run that was appended from `sequence` on. Seqnos that follow each other are
-- remembered together.
local function record_marks(walk, sequence)
    local pieces, subject = {}, walk.group.subject
    for _, mark in ipairs(walk.open_marks) do
        local own_sequence, name = sequence + (mark.index - walk.first), mark.producer_id
        if name == nil then
            idempotency.record(walk.effects, walk.subject_row, mark.key, mark.digest, own_sequence)
        else
            local piece = pieces[name]
            if piece and piece.seqno + piece.count == mark.seqno and piece.sequence + piece.count == own_sequence then
                piece.count = piece.count + 1
            else
                if piece then
                    producer.record(subject, name, piece.seqno, piece.sequence, piece.count)
                end
                pieces[name] = {seqno = mark.seqno, sequence = own_sequence, count = 1}
            end
        end
    end
    for name, piece in pairs(pieces) do
        producer.record(subject, name, piece.seqno, piece.sequence, piece.count)
    end
end

-- Append frames first..upto-1 as one extent, and remember what their marks ask for.
function M.close(walk, upto)
    local count = upto - walk.first
    if count == 0 then
        return
    end
    local group, sizes = walk.group, nil
    if count > 1 then
        sizes = {}
        for i = walk.first + 1, upto do
            table.insert(sizes, group.sizes[i])
        end
    end
    local last, last_offset = commit.append(walk.effects, group.subject, walk.run_lane, {
        headers = producer.merged_headers(walk.run_headers, group.headers), object_name = walk.pack.object_name,
        count = count, size = walk.run_size, byte_from = walk.run_from, sizes = sizes, own = own_of_run(walk, upto),
        content_type = group.content_type, codec = walk.codec})
    local sequence = last - count + 1
    record_marks(walk, sequence)
    table.insert(walk.runs, {walk.first, count, sequence, walk.run_lane, last_offset - count + 1})
    walk.refs = walk.refs + 1
    walk.first, walk.run_from, walk.run_size = upto, walk.position, 0
    walk.open_marks, walk.open_keys = {}, {}
end

-- Leave frame `index` out of the extents: what was before it is appended, and the next run starts behind it.
function M.skip(walk, index, result)
    M.close(walk, index)
    result.index = index
    table.insert(walk.others, result)
    walk.first = index + 1
    walk.run_from = walk.position + walk.group.sizes[index + 1] + schema.FRAME_PREFIX
end

-- A mark that an earlier frame of the same run may answer must be judged after that frame is stored: a key given
-- again, or a seqno that does not go up.
function M.repeats(walk, mark)
    local name = mark.producer_id ~= nil and 'p' .. mark.producer_id or 'k' .. mark.key
    local before = walk.open_keys[name]
    walk.open_keys[name] = schema.present(mark.seqno) or 0
    return before ~= nil and (mark.producer_id == nil or mark.seqno <= before)
end

-- Is there something to look up, or only where to go?
function M.has_name(mark)
    return mark ~= nil and (mark.producer_id ~= nil or mark.key ~= nil)
end

-- The partition of a frame. Those that name neither a producer nor a group stay together.
local function lane_of(walk, mark)
    if mark and (mark.producer_id ~= nil or mark.hash ~= nil) then
        return partitions.lane_for(M.subject_row(walk), mark)
    end
    walk.lane = walk.lane or partitions.lane_for(M.subject_row(walk), {})
    return walk.lane
end

-- The frame becomes part of the run, or begins one: an extent has one partition, and its messages share the headers of
-- one session.
function M.join(walk, index, mark)
    local lane, headers = lane_of(walk, mark), mark and M.session_headers(walk, mark)
    if lane ~= walk.run_lane or headers ~= walk.run_headers then
        if walk.first < index then
            M.close(walk, index)
            if M.has_name(mark) then
                M.repeats(walk, mark)
            end
        end
        walk.run_lane, walk.run_headers = lane, headers
    end
    walk.run_size = walk.run_size + walk.group.sizes[index + 1]
    if M.has_name(mark) then
        table.insert(walk.open_marks, mark)
    end
end

return M
