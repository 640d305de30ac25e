-- Named producers: a seqno is stored at most once, in seqno order, and an answer "duplicate" has proof.
-- Proof is a bounded window of ranges (seqnos that followed each other, in sequences that did too).
local clock = require('mts.clock')
local errors = require('mts.errors')
local schema = require('mts.schema')
local settings = require('mts.subject_settings')
local subjects = require('mts.subject')
local txn = require('mts.txn')

local P, R, S, U = schema.producer, schema.producer_range, schema.subject, schema.producer_upload
local M = {}

local WINDOW = 1000 -- ranges kept a producer

local newest_epoch = 0 -- that this process has given, to whichever producer

-- One of an earlier incarnation of the subject is unknown.
function M.of(subject_row, producer_id)
    local row = box.space.producer:get{subject_row[S.name], producer_id}
    return row and row[P.incarnation] == subject_row[S.incarnation] and row or nil
end

function M.find(subject, producer_id)
    local subject_row = subjects.find(subject)
    return subject_row and M.of(subject_row, producer_id)
end

function M.ensure(subject_row, producer_id)
    local subject, incarnation = subject_row[S.name], subject_row[S.incarnation]
    local row = box.space.producer:get{subject, producer_id}
    if row and row[P.incarnation] == incarnation then
        return row
    end
    if row then -- what it had is found by its number when the deleted subject is cleared away
        box.space.purge_producer:replace{row[P.no]}
    end
    settings.check_id('producer_id', producer_id)
    return box.space.producer:replace{subject, producer_id, box.sequence.producer:next(), incarnation, 0, box.NULL, 0,
        0, clock.seconds(), box.NULL, box.NULL}
end

-- A new session: everything older is fenced. Epochs follow the clock, so that none comes again after the subject was
-- deleted, or the producer forgotten or restored. `headers` go with every message of this session.
function M.next_epoch(row, headers)
    newest_epoch = math.max(clock.milliseconds(), newest_epoch + 1, row[P.epoch] + 1)
    return box.space.producer:replace(schema.changed(row, {[P.epoch] = newest_epoch,
        [P.used_at] = clock.seconds(), [P.headers] = schema.present(headers) or box.NULL}))
end

-- Headers of the session that a message names by its epoch; nil when there are none.
function M.session_headers(row, epoch)
    local headers = epoch ~= nil and epoch == row[P.epoch] and schema.present(row[P.headers])
    return headers and next(headers) and headers or nil
end

-- A message's headers over those of its session.
function M.merged_headers(session, own)
    if session == nil then
        return own
    end
    local merged = schema.map{}
    for _, headers in ipairs{session, own} do
        for name, value in pairs(headers) do
            merged[name] = value
        end
    end
    return merged
end

function M.is_fenced(row, epoch)
    return epoch ~= nil and epoch < row[P.epoch]
end

-- `row` is nil for a producer that nothing is known about.
function M.check_epoch(row, epoch)
    if row and M.is_fenced(row, epoch) then
        errors.refuse('producer_fenced', 'a newer session of this producer has started: leave it to that one, or '
            .. 'start another', {epoch = row[P.epoch]})
    end
    local current = row and row[P.epoch] or 0
    if epoch ~= nil and epoch > current then
        errors.refuse('bad_request', 'this epoch was never given to this producer: start a session to get one',
            {epoch = current})
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
    errors.refuse('seqno_skipped', 'this seqno was passed over, a later one is stored: number it behind last_seqno',
        {last_seqno = row[P.last_seqno]})
end

local function drop_oldest_range(no)
    local oldest = box.space.producer_range:select({no}, {iterator = 'EQ', limit = 1})[1]
    box.space.producer_range:delete{no, oldest[R.first_seqno]}
    return oldest[R.first_seqno] + oldest[R.count]
end

-- Remember that `count` seqnos from `seqno` on were stored under as many sequences from `sequence` on.
function M.record(subject, producer_id, seqno, sequence, count)
    local row = box.space.producer:get{subject, producer_id}
    local no, ranges, floor = row[P.no], row[P.ranges], row[P.floor]
    local last = box.space.producer_range:select({no, seqno}, {iterator = 'LE', limit = 1})[1]
    if last and last[R.no] == no and last[R.first_seqno] + last[R.count] == seqno
            and last[R.first_sequence] + last[R.count] == sequence then
        box.space.producer_range:update({no, last[R.first_seqno]}, {{'+', R.count, count}})
    else
        box.space.producer_range:insert{no, seqno, count, sequence}
        ranges = ranges + 1
        if ranges > WINDOW then
            floor = drop_oldest_range(no)
            ranges = WINDOW
        end
    end
    box.space.producer:update({subject, producer_id}, {{'=', P.last_seqno, seqno + count - 1}, {'=', P.floor, floor},
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

local forgotten_upto = {'', ''} -- where the walk over idle producers goes on; a restart begins it again

-- Forget a producer that was idle since `cutoff`, unless something of it is pending: its ranges first, some at a time.
-- Returns how many rows went.
local function forget_idle(row, cutoff, most)
    if row[P.used_at] >= cutoff or M.first_pending(row[P.no]) or row[P.transaction_id] ~= nil then
        return 0
    end
    local ranges = box.space.producer_range:select({row[P.no]}, {iterator = 'EQ', limit = most})
    for _, range in ipairs(ranges) do
        box.space.producer_range:delete{row[P.no], range[R.first_seqno]}
    end
    if #ranges == most then
        local last = ranges[most]
        box.space.producer:update({row[P.subject], row[P.producer_id]},
            {{'=', P.floor, last[R.first_seqno] + last[R.count]}, {'-', P.ranges, most}})
        return most
    end
    box.space.producer:delete{row[P.subject], row[P.producer_id]}
    return #ranges + 1
end

-- Forget producers that nobody used for `idle` seconds, some at a time. Returns how many went.
function M.trim(idle)
    local cutoff, upto = clock.seconds() - idle, nil
    local gone = txn.run(function()
        local left, count = schema.PER_TRANSACTION, 0
        local rows = box.space.producer:select(forgotten_upto, {iterator = 'GT', limit = left})
        upto = forgotten_upto
        for _, row in ipairs(rows) do
            local touched = forget_idle(row, cutoff, left)
            left = left - math.max(touched, 1)
            if left <= 0 then
                return count
            end
            count = count + (touched > 0 and 1 or 0)
            upto = {row[P.subject], row[P.producer_id]}
        end
        upto = {'', ''}
        return count
    end)
    forgotten_upto = upto
    return gone
end

return M
