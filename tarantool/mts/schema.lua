-- Field numbers of every space, by name. The formats themselves stand in the migrations.
local function fields(names)
    local numbers = {}
    for number, name in ipairs(names) do
        numbers[name] = number
    end
    return numbers
end

-- A null field is truthy in Lua; this makes it nil.
local function present(value)
    if value == nil then
        return nil
    end
    return value
end

-- The fields of a row with some changed, by number. Rows of an older schema end earlier than the format, and an update
-- cannot reach behind their end: nulls fill the gap.
local function changed(row, changes)
    local values = row:totable()
    for number, value in pairs(changes) do
        for gap = #values + 1, number - 1 do
            values[gap] = box.NULL
        end
        values[number] = value
    end
    return values
end

-- An empty table is neither a list nor a map by itself: what callers get, or a field holds, must say which.
local ARRAY, MAP = {__serialize = 'array'}, {__serialize = 'map'}

local function array(values)
    return setmetatable(values, ARRAY)
end

local function map(values)
    return setmetatable(values, MAP)
end

return {
    present = present,
    changed = changed,
    array = array,
    map = map,

    -- `sequence` and `offset` are those of the extent's last message; `own` is {{index, headers, content_type}, ...}
    -- for messages that differ from what the extent shares. `byte_from` is null for a whole, unframed object.
    message = fields{'sequence', 'headers', 'object_name', 'subject', 'create_at', 'partition', 'offset', 'count',
        'size', 'byte_from', 'sizes', 'own', 'content_type', 'sha256', 'codec', 'unverified'},
    upload = fields{'id', 'subject', 'incarnation', 'state', 'size', 'content_type', 'sha256', 'headers',
        'producer_id', 'producer_no', 'seqno', 'epoch', 'sizes', 'created_at', 'expires_at', 'due_at', 'looks',
        'multipart_id', 'part_size', 'parts_seen', 'object_name', 'byte_from', 'sequence', 'reason', 'group', 'hash',
        'codec', 'transaction_id', 'reserved', 'own'},
    -- `partitions` is how many were ever made; messages below `first_sequence` are of an earlier incarnation. Producers
    -- up to number `pinned` wrote while there was one partition: their pairs stay in it.
    subject = fields{'name', 'incarnation', 'partitions', 'created_at', 'settings', 'first_sequence', 'pinned'},
    -- `hash_from` .. `hash_to` (exclusive): the keys that go here; null for all. `split_at`: the last sequence given
    -- before it became inactive.
    partition = fields{'subject', 'partition', 'next_offset', 'messages', 'bytes', 'unverified', 'inactive', 'parent',
        'hash_from', 'hash_to', 'split_at'},
    object = fields{'object_name', 'refs'},
    -- `not_before`: the end of its grace, where it had a message; null where it never had one.
    trash = fields{'object_name', 'due_at', 'reason', 'multipart', 'not_before'},
    producer = fields{'subject', 'producer_id', 'no', 'incarnation', 'epoch', 'last_seqno', 'floor', 'ranges',
        'used_at', 'headers', 'transaction_id'},
    producer_range = fields{'no', 'first_seqno', 'count', 'first_sequence'},
    producer_upload = fields{'no', 'seqno', 'upload_id'},
    idempotency = fields{'incarnation', 'key', 'digest', 'sequence', 'at'},
    rejected_event = fields{'id', 'at', 'object_name', 'reason'},
    route = fields{'incarnation', 'producer_id', 'group', 'partition', 'used_at'},
    -- A shared durable has handed out everything below `next_sequence`; what of it is not acked stands in `delivery`.
    consumers = fields{'durable_name', 'subject', 'last_sequence', 'incarnation', 'mode', 'settings', 'created_at',
        'next_sequence', 'outstanding', 'fence'},
    -- Where a partition is ahead of its durable's `last_sequence`, and who reads it.
    consumer_partition = fields{'durable_name', 'subject', 'partition', 'acked', 'session_id', 'fence'},
    session = fields{'durable_name', 'subject', 'session_id', 'epoch', 'ttl'},
    -- A range of messages handed out and not acked. `last_try_at` is `due_at` where no try is left, else null.
    delivery = fields{'durable_name', 'subject', 'last', 'first', 'count', 'deliveries', 'lease_id', 'granted_at',
        'due_at', 'last_try_at'},
    -- `until_at` and `due_at` in milliseconds of the steady clock.
    transaction = fields{'id', 'state', 'created_at', 'until_at', 'due_at', 'rows', 'outcome', 'reason',
        'receipts_until'},
    -- `data` of kind 'upload' is {upload_id, idempotency key, digest}; of 'ack', the ack. `key`: what it is found by.
    transaction_item = fields{'transaction_id', 'no', 'kind', 'data', 'key'},
    purge = fields{'incarnation', 'subject', 'upto', 'at', 'cursor'},
    -- Producers of a deleted subject whose name one of the new incarnation took.
    purge_producer = fields{'no'},
    -- What open and stored uploads of a subject with quotas will take.
    reservation = fields{'incarnation', 'messages', 'bytes'},
    -- A deletion that the law or an owner asked for: of one message (`sequence`) or of all of a subject up to `upto`.
    -- `sequences` are those of messages that shared the payload; `removed`: all of its rows are gone.
    deletion = fields{'id', 'kind', 'subject', 'at', 'who', 'reason', 'sequence', 'upto', 'messages', 'bytes',
        'sequences', 'removed', 'done_at'},
    -- An object with bytes of deleted messages; rows of its pack stood at the sequence `near`. `target`: the object
    -- that is being written to take its place.
    erasure = fields{'object_name', 'deletion_id', 'near', 'target'},
    -- An extent whose payload is missing, by its first and last sequence.
    missing = fields{'last', 'first', 'at', 'reason'},
    -- A message that changed, or went, behind the journal's cursor.
    journal_change = fields{'sequence'},
    state = fields{'key', 'value'},

    FRAME_PREFIX = 8, -- bytes before each payload of a pack: its length and its CRC-32
    NEVER = 2 ^ 53, -- a due time that does not come
    PER_TRANSACTION = 500, -- rows touched at most by one transaction that walks many
}
