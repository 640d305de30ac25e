-- What is kept of transactions that have ended: how, for a day; the receipts of a commit for an hour, and no more than
-- so many of them in all, since they take the memory that messages need.
local clock = require('mts.clock')
local schema = require('mts.schema')

local F, S = schema.transaction, schema.state
local M = {}

M.MOST_RECEIPTS = 1000000
local KEPT_MS = 24 * 3600 * 1000
local RECEIPTS_MS = 3600 * 1000
local AT_ONCE = 100 -- rows that one commit drops the receipts of, when there are too many
local COUNTER = 'transaction.receipts'

-- How many receipts are kept.
function M.receipts()
    local row = box.space.state:get(COUNTER)
    return row and row[S.value] or 0
end

local function count(change)
    if change ~= 0 then
        box.space.state:replace{COUNTER, math.max(M.receipts() + change, 0)}
    end
end

local function has_receipts(row)
    return row[F.state] == 'committed' and row[F.outcome] ~= nil and #row[F.outcome] > 0
end

local function drop_receipts(row)
    count(-#row[F.outcome])
    box.space.transaction:update(row[F.id], {{'=', F.outcome, box.NULL}, {'+', F.due_at, KEPT_MS - RECEIPTS_MS},
        {'=', F.receipts_until, box.NULL}})
end

-- The oldest go first.
local function trim()
    local too_many, old = M.receipts() - M.MOST_RECEIPTS, {}
    for _, row in box.space.transaction.index.receipts:pairs({0}, {iterator = 'GE'}) do
        if too_many <= 0 or #old == AT_ONCE then
            break
        end
        too_many = too_many - #row[F.outcome]
        table.insert(old, row)
    end
    for _, row in ipairs(old) do
        drop_receipts(row)
    end
end

-- Inside a transaction; returns the row, with its receipts.
function M.committed(id, receipts)
    local has_some = #receipts > 0
    local due_at = clock.steady_ms() + (has_some and RECEIPTS_MS or KEPT_MS)
    local row = box.space.transaction:update(id, {{'=', F.state, 'committed'}, {'=', F.outcome, receipts},
        {'=', F.due_at, due_at}, {'=', F.receipts_until, has_some and due_at or box.NULL}})
    count(#receipts)
    trim()
    return row
end

function M.aborted(id)
    box.space.transaction:update(id, {{'=', F.state, 'aborted'}, {'=', F.due_at, clock.steady_ms() + KEPT_MS}})
end

-- Its time has come: the receipts go first, later the rest.
function M.forget(row)
    if has_receipts(row) then
        drop_receipts(row)
    else
        box.space.transaction:delete(row[F.id])
    end
end

return M
