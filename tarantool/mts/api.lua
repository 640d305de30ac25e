-- What the hosts call. Every function takes a request id first, which stands in this server's log beside errors and
-- slow calls, and answers its result or {error = {code, message, details}}.
local adopt = require('mts.adopt')
local audit = require('mts.audit')
local backup = require('mts.backup')
local ceiling = require('mts.ceiling')
local changes = require('mts.changes')
local clock = require('clock')
local clocks = require('mts.compare_clocks')
local compaction = require('mts.compaction')
local consumer = require('mts.consumer')
local consumer_read = require('mts.consumer_read')
local consumer_tick = require('mts.consumer_tick')
local dead_letter = require('mts.dead_letter')
local deletion = require('mts.deletion')
local delivery = require('mts.delivery')
local erasure = require('mts.erasure')
local errors = require('mts.errors')
local idempotency = require('mts.idempotency')
local journal = require('mts.journal')
local lease = require('mts.lease')
local legacy_import = require('mts.legacy_import')
local log = require('log')
local message = require('mts.message')
local object = require('mts.object')
local outcome = require('mts.upload_outcome')
local pack = require('mts.pack')
local quarantine = require('mts.quarantine')
local recovery = require('mts.recovery')
local rejected = require('mts.rejected')
local restore = require('mts.restore')
local retention = require('mts.retention')
local session = require('mts.session')
local split = require('mts.split')
local status = require('mts.status')
local subject_admin = require('mts.subject_admin')
local time = require('mts.clock')
local transaction_ack = require('mts.transaction_ack')
local transaction_end = require('mts.transaction_end')
local transactions = require('mts.transaction')
local ttl_fiber = require('mts.ttl_fiber')
local upload = require('mts.upload')
local upload_due = require('mts.upload_due')

local SLOW = 0.2
local PATIENT = {audit_lanes = true, audit_mend_lane = true, audit_names = true, audit_mend_refs = true,
    audit_keep = true, audit_discard_orphans = true, audit_discard_deleted = true, deletion_message = true,
    deletion_again = true, erasure_plan = true, missing_add_object = true} -- walk all rows, and yield on the way

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
    producer_start = transaction_end.start_producer,
    publish_batch = pack.commit,
    messages_get = message.page,
    extents_get = message.packed_page,
    message_get = message.get,
    latest_get = message.latest,
    sequence_at = message.sequence_at,
    consumer_put = consumer.put,
    consumer_get = consumer.get,
    consumers_get = consumer.list,
    consumer_delete = consumer.delete,
    consumer_ack = consumer.ack,
    consumer_ack_partitions = session.ack,
    consumer_seek = consumer.seek,
    consumer_read = consumer_read.read,
    consumers_tick = consumer_tick.tick,
    session_join = session.join,
    session_heartbeat = session.heartbeat,
    session_leave = session.leave,
    delivery_lease = delivery.lease,
    delivery_extend = delivery.extend,
    delivery_ack = delivery.ack,
    delivery_nack = delivery.nack,
    dead_letters_get = dead_letter.page,
    dead_letter_subjects = dead_letter.subjects,
    dead_letters_replay = dead_letter.replay,
    dead_letters_purge = dead_letter.purge,
    retention_step = retention.step,
    retention_status = status.retention,
    ttl_configure = ttl_fiber.configure,
    ttl_apply = ttl_fiber.apply,
    clocks_compare = clocks.compare,
    trash_grace = object.set_grace,
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
    subject_put = subject_admin.put,
    subject_get = subject_admin.get,
    subject_delete = subject_admin.delete,
    subject_purge = subject_admin.clear,
    lanes_get = subject_admin.lanes,
    routes_trim = subject_admin.trim,
    partitions_tick = split.tick,
    transaction_begin = transactions.begin,
    transaction_get = transactions.get,
    transaction_ack = transaction_ack.add,
    transaction_commit = transaction_end.commit,
    transaction_abort = transaction_end.abort,
    transactions_tick = transaction_end.tick,
    deletion_message = deletion.message,
    deletion_subject = deletion.subject,
    deletion_again = deletion.again,
    deletion_work = deletion.work,
    deletions_open = deletion.open,
    deletions_trim = deletion.trim,
    erasure_plan = erasure.plan,
    erasure_switch = erasure.switch,
    rows_move = compaction.switch,
    missing_add = quarantine.add,
    missing_release = quarantine.release,
    audit_rows = audit.rows,
    audit_rows_at = audit.rows_at,
    audit_page = audit.page,
    audit_lanes = audit.lanes,
    audit_mend_lane = audit.mend_lane,
    audit_names = audit.names,
    audit_mend_refs = audit.mend_refs,
    audit_keep = audit.keep,
    audit_discard_orphans = audit.discard_orphans,
    audit_discard_deleted = audit.discard_deleted,
    audit_summary = audit.summary,
    packs_missing = audit.packs_missing,
    missing_add_object = audit.quarantine_object,
    consistency_put = audit.put_report,
    consistency_get = audit.report,
    time_get = time.milliseconds,
    position_get = recovery.position,
    recovery_need = recovery.need,
    ceiling_plan = ceiling.plan,
    ceiling_raise = ceiling.raise,
    journal_read = journal.read,
    journal_plan = journal.plan,
    journal_ack = journal.ack,
    journal_lag = journal.lag,
    journal_living = journal.living,
    objects_get = journal.objects,
    backup_begin = backup.begin,
    backup_read = backup.read,
    backup_end = backup.finish,
    restore_begin = restore.begin,
    restore_apply = restore.apply,
    restore_settle = restore.settle,
    restore_drop = restore.drop,
    restore_finish = restore.finish,
    import_begin = legacy_import.begin,
    import_apply = legacy_import.apply,
    import_go_on_behind = legacy_import.go_on_behind,
    import_finish = legacy_import.finish,
    orphans_known = adopt.known,
    orphan_adopt_pack = adopt.pack,
    orphan_adopt_payload = adopt.payload,
    orphans_discard = adopt.discard,
    orphans_end = adopt.finish,
}

local function guarded(name, fn)
    return function(request_id, ...)
        local started = clock.monotonic()
        local ok, result = pcall(fn, ...)
        local took = clock.monotonic() - started
        if not ok and not errors.is_refusal(result) then
            log.error('%s failed request_id=%s: %s', name, tostring(request_id), tostring(result))
        elseif took > SLOW and not PATIENT[name] then
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
