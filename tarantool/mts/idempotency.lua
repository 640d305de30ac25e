-- Idempotency keys of inline publishes: kept for a day, or the newest 100,000 of a subject, whichever ends first.
local clock = require('mts.clock')
local clocks = require('mts.compare_clocks')
local errors = require('mts.errors')
local schema = require('mts.schema')
local txn = require('mts.txn')

local F = schema.idempotency
local M = {}

local LIFE = 24 * 3600
M.KEPT = 100000

local kept = {} -- how many durable keys a subject has, by incarnation; counted once, then carried on

txn.on_durable(function(effects)
    for incarnation, added in pairs(effects.keys_added or {}) do
        kept[incarnation] = kept[incarnation] and kept[incarnation] + added
    end
end)

local function count_of(incarnation)
    if kept[incarnation] == nil then
        kept[incarnation] = box.space.idempotency.index.order:count{incarnation}
    end
    return kept[incarnation]
end

function M.stored_sequence(subject_row, key, digest)
    local row = box.space.idempotency:get{subject_row[schema.subject.incarnation], key}
    if row == nil or (row[F.at] + LIFE < clock.seconds() and clocks.are_right()) then
        return nil
    end
    if row[F.digest] ~= digest then
        errors.refuse('idempotency_conflict', 'this Idempotency-Key was used for another message: take a new one',
            {key = key})
    end
    return row[F.sequence]
end

function M.record(effects, subject_row, key, digest, sequence)
    local incarnation = subject_row[schema.subject.incarnation]
    local known = box.space.idempotency:get{incarnation, key}
    effects.keys_added = effects.keys_added or {}
    local added = (effects.keys_added[incarnation] or 0) + (known and 0 or 1)
    local count = count_of(incarnation) + added
    box.space.idempotency:replace{incarnation, key, digest, sequence, clock.seconds()}
    if count > M.KEPT then
        local oldest = box.space.idempotency.index.order:select({incarnation}, {iterator = 'EQ', limit = 1})[1]
        box.space.idempotency:delete{incarnation, oldest[F.key]}
        added = added - 1
    end
    effects.keys_added[incarnation] = added
end

-- Forget keys older than a day, some at a time. Returns how many went: none by a clock that is not to be trusted.
function M.trim()
    if not clocks.are_right() then
        return 0
    end
    local cutoff = clock.seconds() - LIFE
    return txn.run(function(effects)
        local old = {}
        effects.keys_added = {}
        for _, row in box.space.idempotency.index.at:pairs({}, {iterator = 'ALL'}) do
            if row[F.at] >= cutoff or #old >= schema.PER_TRANSACTION then
                break
            end
            table.insert(old, row)
        end
        for _, row in ipairs(old) do
            box.space.idempotency:delete{row[F.incarnation], row[F.key]}
            local incarnation = row[F.incarnation]
            effects.keys_added[incarnation] = (effects.keys_added[incarnation] or 0) - 1
        end
        return #old
    end)
end

return M
