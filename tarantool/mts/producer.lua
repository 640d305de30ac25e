-- Named producers: a seqno is stored at most once, in seqno order, and an answer "duplicate" has proof.
-- Proof is a bounded window of ranges (seqnos that followed each other, in sequences that did too).
local clock = require('mts.clock')
local errors = require('mts.errors')
local schema = require('mts.schema')

local P, R, U = schema.producer, schema.producer_range, schema.producer_upload
local M = {}

local WINDOW = 1000 -- ranges kept a producer

function M.find(subject, producer_id)
    return box.space.producer:get{subject, producer_id}
end

function M.ensure(subject_row, producer_id)
    local subject = subject_row[schema.subject.name]
    return M.find(subject, producer_id) or box.space.producer:insert{subject, producer_id,
        box.sequence.producer:next(), subject_row[schema.subject.incarnation], 0, box.NULL, 0, 0, clock.seconds()}
end

-- A new session: everything older is fenced.
function M.next_epoch(row)
    return box.space.producer:update({row[P.subject], row[P.producer_id]},
        {{'+', P.epoch, 1}, {'=', P.used_at, clock.seconds()}})
end

function M.is_fenced(row, epoch)
    return epoch ~= nil and epoch < row[P.epoch]
end

-- `row` is nil for a producer that nothing is known about.
function M.check_epoch(row, epoch)
    if row and M.is_fenced(row, epoch) then
        errors.refuse('producer_fenced', 'a newer session of this producer has started', {epoch = row[P.epoch]})
    end
    local current = row and row[P.epoch] or 0
    if epoch ~= nil and epoch > current then
        errors.refuse('bad_request', 'this epoch was never given to this producer', {epoch = current})
    end
end

-- The sequence a seqno was stored under; nil when it is new. Refuses what can be neither.
function M.stored_sequence(row, seqno)
    if row[P.last_seqno] == nil or seqno > row[P.last_seqno] then
        return nil
    end
    local range = box.space.producer_range:select({row[P.no], seqno}, {iterator = 'LE', limit = 1})[1]
    if range and range[R.no] == row[P.no] and seqno < range[R.first_seqno] + range[R.count] then
        return range[R.first_sequence] + (seqno - range[R.first_seqno])
    end
    if seqno < row[P.floor] then
        errors.refuse('seqno_too_old', 'this seqno is older than what is kept about this producer',
            {oldest = row[P.floor], last_seqno = row[P.last_seqno]})
    end
    errors.refuse('seqno_skipped', 'this seqno was passed over: a later one is stored already',
        {last_seqno = row[P.last_seqno]})
end

local function drop_oldest_range(no)
    local oldest = box.space.producer_range:select({no}, {iterator = 'EQ', limit = 1})[1]
    box.space.producer_range:delete{no, oldest[R.first_seqno]}
    return oldest[R.first_seqno] + oldest[R.count]
end

-- Remember that `seqno` was stored under `sequence`.
function M.record(subject, producer_id, seqno, sequence)
    local row = M.find(subject, producer_id)
    local no, ranges, floor = row[P.no], row[P.ranges], row[P.floor]
    local last = box.space.producer_range:select({no, seqno}, {iterator = 'LE', limit = 1})[1]
    if last and last[R.no] == no and last[R.first_seqno] + last[R.count] == seqno
            and last[R.first_sequence] + last[R.count] == sequence then
        box.space.producer_range:update({no, last[R.first_seqno]}, {{'+', R.count, 1}})
    else
        box.space.producer_range:insert{no, seqno, 1, sequence}
        ranges = ranges + 1
        if ranges > WINDOW then
            floor = drop_oldest_range(no)
            ranges = WINDOW
        end
    end
    box.space.producer:update({subject, producer_id}, {{'=', P.last_seqno, seqno}, {'=', P.floor, floor},
        {'=', P.ranges, ranges}, {'=', P.used_at, clock.seconds()}})
end

-- The earliest upload that is still open or stored: nothing behind it may become visible.
function M.first_pending(no)
    local row = box.space.producer_upload:select({no}, {iterator = 'EQ', limit = 1})[1]
    return row and {seqno = row[U.seqno], upload_id = row[U.upload_id]}
end

function M.pending(no, seqno)
    local row = box.space.producer_upload:get{no, seqno}
    return row and row[U.upload_id]
end

function M.add_pending(no, seqno, upload_id)
    box.space.producer_upload:insert{no, seqno, upload_id}
end

function M.remove_pending(no, seqno)
    box.space.producer_upload:delete{no, seqno}
end

return M
