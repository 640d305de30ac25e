-- Rows of durables: a durable belongs to one incarnation of its subject and has one mode for life.
local clock = require('mts.clock')
local errors = require('mts.errors')
local schema = require('mts.schema')
local subjects = require('mts.subject')
local txn = require('mts.txn')

local F = schema.consumers
local M = {}

local DELETED = 'deleted' -- the mode of one whose other rows are being removed
local EMPTY = schema.map{}

local newest_fence = 0 -- that this process has given, to whichever durable

function M.key(row)
    return {row[F.durable_name], row[F.subject]}
end

-- What those who wait for it know it by.
function M.name(row)
    return row[F.subject] .. '/' .. row[F.durable_name]
end

function M.mode(row)
    return schema.present(row[F.mode]) or 'ordered'
end

-- False for one that is being deleted, or is of a subject that was: to callers it does not exist.
function M.is_current(row)
    if M.is_deleted(row) then
        return false
    end
    if row[F.incarnation] == nil then -- of the first schema, when subjects were not deleted
        local subject = subjects.find(row[F.subject])
        local first = subject and schema.present(subject[schema.subject.first_sequence])
        return first == nil or row[F.last_sequence] + 1 >= first
    end
    return subjects.is_current(row[F.subject], row[F.incarnation])
end

function M.find(subject, durable)
    local row = box.space.consumers:get{durable, subject}
    return row and M.is_current(row) and row or nil
end

-- The durable's row; `mode` when only one will do.
function M.need(subject, durable, mode)
    local row = M.find(subject, durable)
    if row == nil then
        errors.refuse('unknown_durable', ('there is no such durable; make it with PUT /v1/subjects/%s/consumers/%s')
            :format(subject, durable), {subject = subject, durable = durable})
    end
    if mode ~= nil and M.mode(row) ~= mode then
        errors.refuse('mode_mismatch', ('this durable is %s; that call is for %s ones'):format(M.mode(row), mode),
            {mode = M.mode(row)})
    end
    return row
end

-- Begins behind `last_sequence`, not before its incarnation of the subject. Fences begin at the time, and above all
-- that were given since this process began: one made again under an old name fences what was read of the old.
function M.create(subject, durable, mode, last_sequence, settings)
    local subject_row = subjects.ensure(subject)
    local first = schema.present(subject_row[schema.subject.first_sequence])
    if first and last_sequence + 1 < first then
        last_sequence = first - 1
    end
    local now = clock.milliseconds()
    newest_fence = now > newest_fence and now or newest_fence + 1
    return box.space.consumers:insert{durable, subject, last_sequence, subject_row[schema.subject.incarnation], mode,
        settings or EMPTY, clock.seconds(), last_sequence + 1, 0, newest_fence}
end

-- Update fields. A row of the first schema has only three of them.
function M.change(row, updates)
    if row[F.fence] == nil then
        box.space.consumers:replace{row[F.durable_name], row[F.subject], row[F.last_sequence],
            subjects.ensure(row[F.subject])[schema.subject.incarnation], 'ordered', EMPTY, clock.seconds(),
            row[F.last_sequence] + 1, 0, 0}
    end
    return box.space.consumers:update(M.key(row), updates)
end

-- What a reader shows with its ack: another number when the durable was moved, by other than an ack, since it read.
function M.fence(row)
    return schema.present(row[F.fence]) or 0
end

-- A number that no reader of this durable had before.
function M.next_fence(row)
    row = M.change(row, {{'+', F.fence, 1}})
    newest_fence = row[F.fence] > newest_fence and row[F.fence] or newest_fence
    return row, row[F.fence]
end

function M.is_deleted(row)
    return row[F.mode] == DELETED
end

function M.mark_deleted(row)
    txn.touch(M.name(row))
    return M.change(row, {{'=', F.mode, DELETED}})
end

return M
