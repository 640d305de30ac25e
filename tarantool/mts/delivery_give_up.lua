-- Messages whose tries are used up go to the dead-letter subject.
local clock = require('mts.clock')
local dead_letter = require('mts.dead_letter')
local durables = require('mts.durable')
local extent = require('mts.extent')
local ranges = require('mts.delivery_range')
local schema = require('mts.schema')
local settings = require('mts.consumer_settings')
local txn = require('mts.txn')

local C, D, F = schema.consumers, schema.delivery, schema.message
local M = {}

-- How far last tries of an earlier run were compared with the clock: the key of one; true when all were.
local compared

-- Give up on up to `limit` messages of a range. Returns how many, and what is left of it.
function M.some(effects, row, range, reason, limit)
    local gone, rest, rows = ranges.split(row[C.subject], range, limit)
    for _, found in ipairs(rows) do
        local cut = extent.cutter(box.tuple.is(found) and found:totable() or found)
        for index = 0, found[F.count] - 1 do
            dead_letter.send(effects, row, cut(index, 1), reason, range.deliveries)
        end
    end
    ranges.erase(row, range)
    if rest then
        ranges.write(row, rest, range.deliveries)
    end
    return gone.count, rest
end

local function ended_tries(now, limit)
    local ended = {}
    for _, entry in box.space.delivery.index.last_try:pairs({0}, {iterator = 'GE'}) do
        if entry[D.last_try_at] > now or #ended == limit then
            break
        end
        table.insert(ended, entry)
    end
    return ended
end

-- Add tries that were granted in a time that has not come yet: the clock was set back since. Looks at some of those of
-- an earlier run a call; one who finds any looks there again, since what is done with them may not become durable.
local function add_early(now, due)
    local looked, found, reached = 0, false, nil
    for _, entry in box.space.delivery.index.last_try:pairs(compared or {now}, {iterator = 'GT'}) do
        if looked == schema.PER_TRANSACTION then
            break
        end
        looked = looked + 1
        reached = {entry[D.last_try_at], entry[D.durable_name], entry[D.subject], entry[D.last]}
        if entry[D.granted_at] > now then
            table.insert(due, entry)
            found = true
        end
    end
    if not found then
        compared = looked < schema.PER_TRANSACTION or reached
    end
end

-- Give up on messages whose last try has ended, of whichever durables, up to `limit`. Their index has nothing else in
-- it, so this costs what it finds, and after a start a look at some more. Returns how many, and whether to go on.
function M.due(limit)
    local dead_lettered = txn.run(function(effects)
        local now, budget, dead_lettered = clock.steady_ms(), math.min(limit, schema.PER_TRANSACTION), 0
        local due = ended_tries(now, budget)
        if compared ~= true and #due < budget then
            add_early(now, due)
        end
        for _, entry in ipairs(due) do
            local row, range = durables.find(entry[D.subject], entry[D.durable_name]), ranges.open(entry)
            local most = row and settings.tries(row)
            if row == nil then
                box.space.delivery:update({entry[1], entry[2], entry[3]}, {{'=', D.last_try_at, box.NULL}})
            elseif most == nil or range.deliveries < most then
                ranges.write(row, range, most)
            elseif budget > 0 then
                local gone = M.some(effects, row, range, 'lease_ended', budget)
                ranges.settle(row, -gone)
                budget, dead_lettered = budget - gone, dead_lettered + gone
            end
        end
        return dead_lettered
    end)
    return dead_lettered, compared ~= true
end

return M
