-- Transactions as rows: what is published and acked in one stands in `transaction_item`, and nobody sees it until the
-- commit. Here is how one begins, who may add to it and what it holds; transaction_end.lua says how it ends.
local clock = require('mts.clock')
local errors = require('mts.errors')
local producer = require('mts.producer')
local schema = require('mts.schema')
local txn = require('mts.txn')

local F, I, P = schema.transaction, schema.transaction_item, schema.producer
local M = {}

M.MOST_ROWS = 1000
local DEFAULT_TIMEOUT, LONGEST_TIMEOUT = 60, 900

-- What callers know of one. Of an aborted one `reason` says why; of a committed one `receipts`
-- {{upload_id, sequence, partition, offset, count}, ...} say what became of its uploads, by their last messages, as
-- long as they are kept.
function M.describe(row)
    local described = {transaction_id = row[F.id], state = row[F.state], expires_at_ms = row[F.until_at],
        rows = row[F.rows], reason = row[F.reason], receipts = row[F.outcome]}
    if row[F.state] == 'open' and M.is_over(row) then -- nobody has noticed yet
        described.state, described.reason = 'aborting', 'timeout'
    end
    return described
end

function M.begin(timeout)
    timeout = schema.present(timeout) or DEFAULT_TIMEOUT
    if type(timeout) ~= 'number' or not (timeout >= 1 and timeout <= LONGEST_TIMEOUT) then
        errors.refuse('bad_request', ('`timeout` must be 1 to %d seconds'):format(LONGEST_TIMEOUT),
            {field = 'timeout', allowed = {1, LONGEST_TIMEOUT}})
    end
    return txn.run(function()
        local now = clock.steady_ms()
        local until_at = now + math.ceil(timeout * 1000)
        return M.describe(box.space.transaction:insert{clock.new_id(), 'open', now, until_at, until_at, 0,
            box.NULL, box.NULL, box.NULL})
    end)
end

function M.need(id)
    local row = box.space.transaction:get(id)
    if row == nil then
        errors.refuse('unknown_transaction', 'there is no such transaction; one that ended is known for a day',
            {transaction_id = id})
    end
    return row
end

function M.get(id)
    return txn.run(function()
        return M.describe(M.need(id))
    end)
end

-- Its time has passed. One begun "in the future" is of a run before the clock was set back: its time is not known.
function M.is_over(row)
    local now = clock.steady_ms()
    return row[F.until_at] <= now or row[F.created_at] > now
end

-- May it still be added to?
function M.is_open(id)
    local row = box.space.transaction:get(id)
    return row ~= nil and row[F.state] == 'open' and not M.is_over(row)
end

function M.refuse_ended(row, reason)
    local state = row[F.state] == 'open' and 'aborted' or row[F.state]
    errors.refuse('transaction_ended', state == 'committed' and 'this transaction is committed'
        or 'this transaction was aborted; begin another', {transaction_id = row[F.id], state = state,
        reason = reason or schema.present(row[F.reason])})
end

function M.need_open(id)
    local row = M.need(id)
    if row[F.state] ~= 'open' then
        M.refuse_ended(row)
    elseif M.is_over(row) then
        M.refuse_ended(row, 'timeout')
    end
    return row
end

-- Nothing of it will ever be seen. What it holds is undone by transaction_end.lua, at once or when it is due.
function M.mark_aborting(row, reason)
    return box.space.transaction:update(row[F.id], {{'=', F.state, 'aborting'}, {'=', F.due_at, 0},
        {'=', F.outcome, box.NULL}, {'=', F.reason, reason}})
end

-- Items, in the order in which they came.
function M.items(id, limit)
    return box.space.transaction_item:select({id}, {iterator = 'EQ', limit = limit})
end

-- An item that has a key of its own, or nil.
function M.find(id, key)
    return box.space.transaction_item.index.key:get{id, key}
end

-- Room for so many rows more; inside a transaction that has found it open.
function M.take_rows(id, count)
    local row = box.space.transaction:get(id)
    if row[F.rows] + count > M.MOST_ROWS then
        errors.refuse('transaction_too_large', ('a transaction holds at most %d rows; commit, and begin another')
            :format(M.MOST_ROWS), {transaction_id = id, limit = M.MOST_ROWS, rows = row[F.rows]})
    end
    box.space.transaction:update(id, {{'+', F.rows, count}})
end

-- Add an item that counts as `rows`, under a key if it must be found again.
function M.add(id, kind, data, rows, key)
    M.take_rows(id, rows)
    local last = box.space.transaction_item.index.primary:max{id}
    return box.space.transaction_item:insert{id, last and last[I.no] + 1 or 1, kind, data, key or box.NULL}
end

function M.change(item, data)
    box.space.transaction_item:update({item[I.transaction_id], item[I.no]}, {{'=', I.data, data}})
end

-- Add an upload that points at it; `mark` {key, digest} is its Idempotency-Key, and `key` what it is found by.
function M.add_upload(id, upload_id, mark, key)
    M.add(id, 'upload', {upload_id, mark and mark.key or box.NULL, mark and mark.digest or box.NULL}, 1, key)
end

-- Its producer gave an upload up: the transaction may go on without it.
function M.drop_upload(id, upload_id)
    for _, item in ipairs(M.items(id)) do
        if item[I.kind] == 'upload' and item[I.data][1] == upload_id then
            box.space.transaction_item:delete{id, item[I.no]}
            box.space.transaction:update(id, {{'-', F.rows, 1}})
        end
    end
end

-- A producer is in at most one transaction, and then nowhere else. `id` is nil for what is published outside.
function M.check_producer(owner, id)
    local current = schema.present(owner[P.transaction_id])
    if current ~= nil and current ~= id then
        errors.refuse('producer_in_transaction', 'this producer is in a transaction: publish in it, or end it first',
            {producer_id = owner[P.producer_id], transaction_id = current})
    end
    local first = id ~= nil and current == nil and producer.first_pending(owner[P.no])
    if first then
        errors.refuse('transaction_conflict', 'this producer has uploads outside of it that have not ended',
            {producer_id = owner[P.producer_id], upload_id = first.upload_id})
    end
end

function M.enter_producer(owner, id)
    if owner[P.transaction_id] ~= id then
        box.space.producer:replace(schema.changed(owner, {[P.transaction_id] = id}))
    end
end

-- It leaves with the last of its uploads.
function M.leave_producer(subject, producer_id, id)
    local owner = box.space.producer:get{subject, producer_id}
    if owner and owner[P.transaction_id] == id and producer.first_pending(owner[P.no]) == nil then
        box.space.producer:update({subject, producer_id}, {{'=', P.transaction_id, box.NULL}})
    end
end

-- A new session of a producer: the transaction that the old one was in has come to nothing.
function M.fence_producer(owner)
    local id = schema.present(owner[P.transaction_id])
    local row = id ~= nil and box.space.transaction:get(id)
    if row and row[F.state] == 'open' then
        M.mark_aborting(row, 'producer_fenced')
    end
    return id
end

return M
