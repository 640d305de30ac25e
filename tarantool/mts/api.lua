-- What the hosts call. Every function takes a request id first, which stands in this server's log beside errors and
-- slow calls, and answers its result or {error = {code, message, details}}.
local changes = require('mts.changes')
local clock = require('clock')
local errors = require('mts.errors')
local idempotency = require('mts.idempotency')
local lease = require('mts.lease')
local log = require('log')
local message = require('mts.message')
local object = require('mts.object')
local outcome = require('mts.upload_outcome')
local pack = require('mts.pack')
local rejected = require('mts.rejected')
local status = require('mts.status')
local time = require('mts.clock')
local upload = require('mts.upload')
local upload_due = require('mts.upload_due')

local SLOW = 0.2

local FUNCTIONS = {
    upload_create = upload.create,
    upload_get = upload.get,
    upload_set_multipart = upload.set_multipart,
    upload_extend = upload.extend,
    upload_commit = outcome.commit,
    upload_abort = outcome.abort,
    upload_expire = outcome.expire,
    upload_resume = outcome.resume,
    uploads_due = upload_due.due,
    upload_postpone = upload_due.postpone,
    upload_settle = upload_due.settle,
    producer_start = outcome.start_producer,
    publish_batch = pack.commit,
    messages_get = message.page,
    message_get = message.get,
    latest_get = message.latest,
    trash_due = object.trash_due,
    trash_done = object.trash_done,
    trash_postpone = object.trash_postpone,
    packs_cursor = object.packs_cursor,
    packs_settle = object.packs_settle,
    idempotency_trim = idempotency.trim,
    event_reject = rejected.add,
    lease_take = lease.take,
    status_get = status.get,
    subjects_get = status.subjects,
    time_get = time.milliseconds,
}

local function guarded(name, fn)
    return function(request_id, ...)
        local started = clock.monotonic()
        local ok, result = pcall(fn, ...)
        local took = clock.monotonic() - started
        if not ok and not errors.is_refusal(result) then
            log.error('%s failed request_id=%s: %s', name, tostring(request_id), tostring(result))
        elseif took > SLOW then
            log.warn('%s was slow request_id=%s ms=%d', name, tostring(request_id), took * 1000)
        end
        if ok then
            return result
        end
        return {error = errors.describe(result)}
    end
end

-- Waits by intent, so it is never slow.
local M = {changes_wait = function(_, ...)
    return changes.wait(...)
end}
for name, fn in pairs(FUNCTIONS) do
    M[name] = guarded(name, fn)
end
return M
