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

return {
    present = present,

    -- `sequence` and `offset` are those of the extent's last message; `own` is {{index, headers, content_type}, ...}
    -- for messages that differ from what the extent shares. `byte_from` is null for a whole, unframed object.
    message = fields{'sequence', 'headers', 'object_name', 'subject', 'create_at', 'partition', 'offset', 'count',
        'size', 'byte_from', 'sizes', 'own', 'content_type', 'sha256', 'codec', 'unverified'},
    upload = fields{'id', 'subject', 'incarnation', 'state', 'size', 'content_type', 'sha256', 'headers',
        'producer_id', 'producer_no', 'seqno', 'epoch', 'sizes', 'created_at', 'expires_at', 'due_at', 'looks',
        'multipart_id', 'part_size', 'parts_seen', 'object_name', 'byte_from', 'sequence', 'reason'},
    subject = fields{'name', 'incarnation', 'partitions', 'created_at', 'settings'},
    partition = fields{'subject', 'partition', 'next_offset', 'messages', 'bytes', 'unverified'},
    object = fields{'object_name', 'refs'},
    trash = fields{'object_name', 'due_at', 'reason', 'multipart'},
    producer = fields{'subject', 'producer_id', 'no', 'incarnation', 'epoch', 'last_seqno', 'floor', 'ranges',
        'used_at'},
    producer_range = fields{'no', 'first_seqno', 'count', 'first_sequence'},
    producer_upload = fields{'no', 'seqno', 'upload_id'},
    idempotency = fields{'incarnation', 'key', 'digest', 'sequence', 'at'},
    rejected_event = fields{'id', 'at', 'object_name', 'reason'},
    consumers = fields{'durable_name', 'subject', 'last_sequence'},
    state = fields{'key', 'value'},

    FRAME_PREFIX = 8, -- bytes before each payload of a pack: its length and its CRC-32
    NEVER = 2 ^ 53, -- a due time that does not come
    PER_TRANSACTION = 500, -- rows touched at most by one transaction that walks many
}
