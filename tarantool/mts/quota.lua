-- Quotas: what a subject may hold, and how fast it may grow. Tickets reserve, ends without a message release; a commit
-- never fails on a quota. Dead letters and replays are appended without asking here. Subjects without quotas have no
-- rows here.
local errors = require('mts.errors')
local fiber = require('fiber')
local schema = require('mts.schema')
local settings = require('mts.subject_settings')

local F, P, R = schema.subject, schema.partition, schema.reservation
local M = {}

M.now = fiber.clock

local ROUNDING = 1e-6 -- who waited as long as told must not be refused for the last bit of a fraction

local buckets = {} -- by subject: tokens for messages, as many as one second brings

-- Messages and bytes stored or reserved.
function M.used(subject_row)
    local reserved = box.space.reservation:get(subject_row[F.incarnation])
    local messages, bytes = 0, 0
    if reserved then
        messages, bytes = reserved[R.messages], reserved[R.bytes]
    end
    for _, lane in box.space.partition:pairs({subject_row[F.name]}, {iterator = 'EQ'}) do
        messages, bytes = messages + lane[P.messages], bytes + lane[P.bytes]
    end
    return {messages = messages, bytes = bytes}
end

local Room = {}
Room.__index = Room

-- What a subject has room for now; nil when it has no quota of messages or bytes.
function M.room(subject_row)
    local quota = settings.of(subject_row).quota
    if quota.messages == nil and quota.bytes == nil then
        return nil
    end
    return setmetatable({quota = quota, used = M.used(subject_row), incarnation = subject_row[F.incarnation]}, Room)
end

-- Take room for messages, or refuse.
function Room:take(messages, bytes)
    local wanted = {messages = messages, bytes = bytes}
    for _, name in ipairs{'messages', 'bytes'} do
        local limit = self.quota[name]
        if limit and self.used[name] + wanted[name] > limit then
            errors.refuse('quota_exceeded', ('this subject may hold %.0f %s; raise its quota'):format(limit, name),
                {quota = name, limit = limit, used = self.used[name], wanted = wanted[name]})
        end
    end
    self.used.messages, self.used.bytes = self.used.messages + messages, self.used.bytes + bytes
end

-- Keep for an upload what was taken.
function Room:reserve(messages, bytes)
    box.space.reservation:upsert({self.incarnation, messages, bytes},
        {{'+', R.messages, messages}, {'+', R.bytes, bytes}})
end

-- An upload that reserved has ended, one way or the other. Nothing is left to do when its subject was cleared away.
function M.release(incarnation, messages, bytes)
    box.space.reservation:update(incarnation, {{'-', R.messages, messages}, {'-', R.bytes, bytes}})
end

function M.has_rate(subject_row)
    return settings.of(subject_row).quota.rate ~= nil
end

-- Take `messages` at the subject's rate, or refuse and say when to come again. More than a second's worth at once
-- waits for a full second and then owes the rest.
function M.pass(subject_row, messages)
    local rate = settings.of(subject_row).quota.rate
    if rate == nil or messages == 0 then
        return
    end
    local name, now = subject_row[F.name], M.now()
    local bucket = buckets[name]
    if bucket == nil or bucket.rate ~= rate then
        bucket = {rate = rate, tokens = rate, at = now}
        buckets[name] = bucket
    end
    bucket.tokens = math.min(rate, bucket.tokens + (now - bucket.at) * rate)
    bucket.at = now
    local needed = math.min(messages, rate)
    if bucket.tokens + ROUNDING < needed then
        local wait = math.ceil((needed - bucket.tokens) / rate * 1000) / 1000
        errors.refuse('rate_limited', ('this subject takes %.0f messages a second; come again later'):format(rate),
            {limit = rate, retry_after = wait})
    end
    bucket.tokens = bucket.tokens - messages
end

function M.forget(name)
    buckets[name] = nil
end

return M
