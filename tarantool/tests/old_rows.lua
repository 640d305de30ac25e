-- Rows as databases of older schemas hold them, for tests of migrations: tuples as long as they were written then.
local NULL, MAP = box.NULL, setmetatable({}, {__serialize = 'map'})
local DAY = 24 * 3600
local NOW = os.time()

local M = {AT = NOW - 10 * DAY}

local function id(number)
    return ('0190aaaa-0000-7000-8000-%012d'):format(number)
end

M.UPLOADS = {committed = id(1), open = id(2), late = id(3), first = id(4), behind = id(5), staged = id(6)}
M.PACK, M.GONE, M.KEPT = '_mts/packs/' .. id(7), 'm/orders/1/' .. id(8), 'm/orders/1/' .. id(9)
M.TRANSACTION = id(10)

local function add_message(sequence, subject, offset, count, more)
    local object_name = more.object_name or ('m/%s/1/%s'):format(subject, id(sequence))
    box.space.message:insert{sequence, more.headers or MAP, object_name, subject, M.AT, 0, offset, count,
        more.size or 5, more.byte_from or NULL, more.sizes or NULL, more.own or NULL, 'text/plain', NULL, NULL,
        more.unverified or NULL}
end

local function add_upload(name, state, more)
    local owner = more.seqno and {'p', 1, more.seqno, 0} or {NULL, NULL, NULL, NULL}
    box.space.upload:insert{M.UPLOADS[name], 'orders', 1, state, 5, 'text/plain', NULL, MAP, owner[1], owner[2],
        owner[3], owner[4], NULL, M.AT, more.expires_at or NOW + 3600, more.due_at or NOW + 30, 0, NULL, NULL, 0,
        more.object_name or NULL, more.byte_from or NULL, more.sequence or NULL, NULL, unpack(more.behind or {})}
    if more.seqno then
        box.space.producer_upload:insert{1, more.seqno, M.UPLOADS[name]}
    end
end

-- What each version's spaces got, beside what those before it had.
local ADD = {}

-- A subject with a plain message, a pack of three, one without a ticket and two of a named producer; a durable that
-- has read the first two; uploads in every state that goes on.
ADD[1] = function()
    box.space.subject:insert{'orders', box.sequence.incarnation:next(), 1, M.AT, MAP}
    add_message(1, 'orders', 0, 1, {headers = {source = 'old'}})
    add_message(4, 'orders', 3, 3, {object_name = M.PACK, size = 30, byte_from = 9, sizes = {10, 10, 10},
        own = {{1, {place = 'second'}, NULL}}})
    add_message(5, 'orders', 4, 1, {object_name = 'orders_5', size = 0, unverified = true})
    add_message(6, 'orders', 5, 1, {})
    add_message(7, 'orders', 6, 1, {})
    box.space.partition:insert{'orders', 0, 7, 7, 45, 1}
    box.space.object:insert{M.PACK, 2}
    box.space.producer:insert{'orders', 'p', box.sequence.producer:next(), 1, 0, 2, 0, 1, NOW}
    box.space.producer_range:insert{1, 1, 2, 6}
    box.space.idempotency:insert{1, 'key', 'digest', 1, NOW}
    box.space.consumers:insert{'reader', 'orders', 2}
    add_upload('committed', 'committed', {sequence = 1})
    add_upload('open', 'open', {})
    add_upload('late', 'open', {expires_at = M.AT + 3600, due_at = M.AT})
    add_upload('first', 'open', {seqno = 3})
    add_upload('behind', 'stored', {seqno = 4, due_at = 2 ^ 53, object_name = M.PACK, byte_from = 63})
    box.space.trash:insert{M.GONE, M.AT, 'aborted', false}
    box.space.rejected_event:insert{NULL, M.AT, 'foreign', 'not ours'}
    box.space.state:insert{'packs_cursor', '_mts/packs/'}
end

-- A second subject with a shared durable whose lease is over; an upload that waits for its transaction.
ADD[2] = function()
    box.space.subject:insert{'jobs', box.sequence.incarnation:next(), 1, M.AT, MAP, 8, NULL}
    local pack = '_mts/packs/' .. id(11)
    add_message(10, 'jobs', 2, 3, {object_name = pack, size = 30, byte_from = 9, sizes = {10, 10, 10}})
    box.space.partition:insert{'jobs', 0, 3, 3, 30, 0}
    box.space.object:insert{pack, 1}
    box.space.consumers:insert{'workers', 'jobs', 7, 2, 'shared', MAP, M.AT, 11, 3, 0}
    box.space.delivery:insert{'workers', 'jobs', 10, 8, 3, 1, 'lease', M.AT * 1000, M.AT * 1000, NULL}
    add_upload('staged', 'stored', {due_at = 2 ^ 53, behind = {NULL, NULL, NULL, M.TRANSACTION, NULL}})
    local until_at = (NOW + 900) * 1000
    box.space.transaction:insert{M.TRANSACTION, 'open', NOW * 1000 - 1000, until_at, until_at, 1, NULL, NULL, NULL}
    box.space.transaction_item:insert{M.TRANSACTION, 1, 'upload', {M.UPLOADS.staged, NULL, NULL}, NULL}
end

-- A payload whose message has expired a moment ago.
ADD[3] = function()
    box.space.trash:insert{M.KEPT, NOW + DAY, 'expired', false, NOW + DAY}
end

ADD[4] = function()
    box.space.journal_change:insert{4}
end

-- What a database of this version holds.
function M.write(version)
    for step = 1, version do
        ADD[step]()
    end
end

return M
