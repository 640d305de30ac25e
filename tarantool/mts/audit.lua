-- What `mts fsck` asks: rows and everything that may point at an object, page by page, and counts that hold for one
-- moment however much is published, swept and cleared away meanwhile.
local ceiling = require('mts.ceiling')
local clock = require('mts.clock')
local commit = require('mts.commit')
local errors = require('mts.errors')
local extent = require('mts.extent')
local message = require('mts.message')
local object = require('mts.object')
local object_rows = require('mts.object_rows')
local quarantine = require('mts.quarantine')
local recovery = require('mts.recovery')
local row_walk = require('mts.row_walk')
local schema = require('mts.schema')
local txn = require('mts.txn')
local upload = require('mts.upload')

local F, O, P, T, U = schema.message, schema.object, schema.partition, schema.trash, schema.upload
local M = {}

local PACKS = object.PACKS

-- {key, count, object name, first byte or null, bytes, unverified, missing} of a row.
local function facts(row)
    local first, bytes = extent.span(row)
    return {row[F.sequence], row[F.count], row[F.object_name], row[F.byte_from] ~= nil and first or box.NULL, bytes,
        row[F.unverified] == true, quarantine.holds(row)}
end

-- Up to `limit` rows behind a key.
function M.rows(after, limit)
    local found, top = schema.array{}, commit.watermark()
    for _, row in box.space.message.index.primary:pairs({after}, {iterator = 'GT'}) do
        if row[F.sequence] > top or #found >= limit then
            break
        end
        table.insert(found, facts(row))
    end
    return found
end

-- The rows with these keys, whole, and whether they are kept apart; those that are gone are left out.
function M.rows_at(keys)
    return txn.run(function()
        local found = schema.array{}
        for _, key in ipairs(keys) do
            local row = box.space.message:get(key)
            if row then
                table.insert(found, {row, quarantine.holds(row)})
            end
        end
        return found
    end)
end

local PAGES = {
    objects = {'object', function(row) return {row[O.object_name], row[O.refs]} end},
    uploads = {'upload', function(row)
        return {row[U.id], row[U.state], upload.object_name(row), row[U.byte_from] ~= nil, row[U.size],
            row[U.created_at]}
    end},
    trash = {'trash', function(row) return {row[T.object_name], row[T.due_at]} end},
}

-- Up to `limit` entries of `objects`, `uploads` or `trash` behind a key.
function M.page(what, after, limit)
    local name, shape = PAGES[what][1], PAGES[what][2]
    return txn.run(function()
        local found = schema.array{}
        for _, row in ipairs(box.space[name]:select({after}, {iterator = 'GT', limit = limit})) do
            table.insert(found, shape(row))
        end
        return found
    end)
end

-- The lane behind one, in the order of subjects and partitions, whether it has rows, counters or both.
local function next_lane(subject, partition)
    local counted = box.space.partition:select({subject, partition}, {iterator = 'GT', limit = 1})[1]
    local stored = box.space.message.index.subject_partition:select({subject, partition, -1ULL},
        {iterator = 'GT', limit = 1})[1]
    if counted == nil and stored == nil then
        return nil
    end
    local one = counted and {counted[P.subject], counted[P.partition]}
    local other = stored and {stored[F.subject], stored[F.partition]}
    if one == nil or (other and (other[1] < one[1] or (other[1] == one[1] and other[2] < one[2]))) then
        return other[1], other[2]
    end
    return one[1], one[2]
end

-- Counters of a lane and what its rows give, at one moment. `mend(lane, counted)` runs in that moment too.
local function compare(subject, partition, mend)
    local counted
    return row_walk.run(box.space.message.index.subject_partition, {subject, partition}, function()
        counted = {messages = 0, bytes = 0, unverified = 0, rows = 0, last_offset = nil}
        local first = message.first_sequence(subject)
        return {
            wants = function(row)
                return row[F.subject] == subject and row[F.partition] == partition
                    and first ~= nil and row[F.sequence] >= first
            end,
            count = function(row, sign)
                counted.rows = counted.rows + sign
                counted.messages = counted.messages + sign * tonumber(row[F.count])
                counted.bytes = counted.bytes + sign * tonumber(row[F.size])
                counted.unverified = counted.unverified
                    + (row[F.unverified] == true and sign * tonumber(row[F.count]) or 0)
                counted.last_offset = sign > 0 and row[F.offset] or counted.last_offset
            end,
        }
    end, function()
        local lane = box.space.partition:get{subject, partition}
        local mended = mend ~= nil and mend(lane, counted)
        return {subject = subject, partition = partition, rows = counted.rows, messages = counted.messages,
            bytes = counted.bytes, unverified = counted.unverified,
            counters = lane and {messages = lane[P.messages], bytes = lane[P.bytes], unverified = lane[P.unverified],
                next_offset = lane[P.next_offset]},
            last_offset = counted.last_offset, mended = mended}
    end)
end

local MOST_LANES, MOST_ROWS = 1000, 200000

-- Lanes behind one, each with its counters and what its rows give; some at a time.
function M.lanes(subject, partition)
    local found, rows = schema.array{}, 0
    while #found < MOST_LANES and rows < MOST_ROWS do
        subject, partition = next_lane(subject, partition)
        if subject == nil then
            return {lanes = found, more = false}
        end
        local lane = compare(subject, partition)
        table.insert(found, lane)
        rows = rows + lane.rows
    end
    return {lanes = found, more = true}
end

-- Set the counters of a lane to what its rows give.
function M.mend_lane(subject, partition)
    return compare(subject, partition, function(lane, counted)
        if message.first_sequence(subject) == nil then
            return false
        end
        local next_offset = counted.last_offset and counted.last_offset + 1 or 0
        if lane == nil then
            box.space.partition:insert{subject, partition, next_offset, counted.messages, counted.bytes,
                counted.unverified}
            return true
        end
        if lane[P.next_offset] > next_offset then
            next_offset = lane[P.next_offset]
        end
        box.space.partition:update({subject, partition}, {{'=', P.messages, counted.messages},
            {'=', P.bytes, counted.bytes}, {'=', P.unverified, counted.unverified},
            {'=', P.next_offset, next_offset}})
        return true
    end)
end

local function upload_of(name)
    local id = object.upload_id(name)
    local row = id and box.space.upload:get(id)
    return row and upload.object_name(row) == name and row[U.state] or nil
end

-- What points at these objects, at one moment. `mend(name, rows, refs)` runs in that moment too.
local function look(names, mend)
    local counts, wanted = {}, {}
    for _, name in ipairs(names) do
        wanted[name] = true
    end
    return row_walk.run(box.space.message.index.primary, {}, function()
        counts = {}
        return {
            wants = function(row) return wanted[row[F.object_name]] and row[F.unverified] ~= true end,
            count = function(row, sign)
                counts[row[F.object_name]] = (counts[row[F.object_name]] or 0) + sign
            end,
        }
    end, function()
        local found = schema.map{}
        for name in pairs(wanted) do
            local entry = box.space.object:get(name)
            local one = {rows = counts[name] or 0, stored = #object_rows.stored_uploads(name),
                refs = entry and entry[O.refs], trash = object.in_trash(name), upload = upload_of(name)}
            one.mended = mend ~= nil and mend(name, one)
            found[name] = one
        end
        return found
    end)
end

-- {[name] = {rows, stored, refs or null, trash, upload's state or null}}
function M.names(names)
    return look(names)
end

-- Are rows and uploads counted rightly that point at an object?
local function refs_are_right(found)
    local pointing = found.rows + found.stored
    if found.refs == nil then
        return pointing <= 1 or found.trash
    end
    return found.refs == pointing
end

-- Set the number of references of these objects to what points at them.
function M.mend_refs(names)
    return look(names, function(name, found)
        if refs_are_right(found) then
            return false
        end
        local pointing = found.rows + found.stored
        box.space.object:replace{name, pointing}
        if pointing == 0 then
            object.discard(name, 'unused')
        elseif found.trash then -- it is needed, and was never to go
            box.space.trash:delete(name)
        end
        return true
    end)
end

-- Take objects out of the trash that something points at.
function M.keep(names)
    return look(names, function(name, found)
        if not found.trash or found.rows + found.stored == 0 then
            return false
        end
        box.space.trash:delete(name)
        return true
    end)
end

-- Send objects to the trash that nothing points at, as `look` finds in the same moment. Packs younger than the grace
-- may still be committed. After a restore nothing is sent there until the operator has said so.
function M.discard_orphans(names, grace)
    if recovery.state() then
        errors.refuse('recovery_conflict',
            'after a restore nothing is deleted until you say so: `mts restore --adopt` or `--discard`')
    end
    local young = PACKS .. clock.id_start(clock.milliseconds() - grace * 1000)
    return look(names, function(name, found)
        local is_young = name:sub(1, #PACKS) == PACKS and name >= young
        if found.rows > 0 or found.stored > 0 or found.trash or found.upload ~= nil or is_young
                or (found.refs ~= nil and found.refs > 0) then
            return false
        end
        object.discard(name, 'orphan')
        return true
    end)
end

-- Objects of messages that were deleted for good, after a restore: those that nothing points at go now. Returns how
-- many.
function M.discard_deleted(names)
    local gone = 0
    look(names, function(name, found)
        if found.rows == 0 and found.stored == 0 then -- also when it is in the trash for later
            object.discard_at_once(name, 'deleted')
            gone = gone + 1
        end
    end)
    return gone
end

-- Packs behind a key that rows point at, and that the bucket's listing from there on, `names`, does not have.
function M.packs_missing(after, names)
    return txn.run(function()
        local listed, found, last = {}, schema.array{}, names[#names] or ''
        for _, name in ipairs(names) do
            listed[name] = true
        end
        for _, row in box.space.object:pairs({after > PACKS and after or PACKS}, {iterator = 'GT'}) do
            local name = row[O.object_name]
            if name > last then
                break
            end
            if row[O.refs] > 0 and not listed[name] and not object.in_trash(name) then
                table.insert(found, name)
            end
        end
        return found
    end)
end

-- An object was looked for and not found: keep all rows apart that point at it. Returns how many messages.
function M.quarantine_object(name, reason)
    local items = {}
    for _, key in ipairs(object_rows.find(name, 0)) do
        table.insert(items, {key, name, reason})
    end
    return quarantine.add(items)
end

local function state(key)
    local row = box.space.state:get(key)
    return row and row[schema.state.value]
end

-- Figures that stand in every report.
function M.summary()
    return txn.run(function()
        local oldest, first_trash = nil, box.space.trash.index.due:min()
        for _, row in box.space.upload:pairs({}, {iterator = 'ALL'}) do -- ids are in the order of time
            if row[U.state] == 'open' or row[U.state] == 'stored' then
                oldest = row
                break
            end
        end
        return {watermark = commit.watermark(), time = clock.seconds(), uploads = box.space.upload:len(),
            oldest_ticket = oldest and {id = oldest[U.id], state = oldest[U.state], created_at = oldest[U.created_at]},
            trash = box.space.trash:len(), oldest_trash_due_at = first_trash and first_trash[T.due_at],
            missing = box.space.missing:len(), deletions = box.space.deletion.index.done:count{box.NULL},
            ceiling = ceiling.get().top, recovery = recovery.state()}
    end)
end

-- The report with this name in the bucket is the latest now; the one before it goes.
function M.put_report(report)
    return txn.run(function()
        local before = state('consistency')
        box.space.state:replace{'consistency', report}
        if before and before.object_name ~= report.object_name then
            object.discard_at_once(before.object_name, 'old_report')
        end
        return true
    end)
end

-- Where the latest report is: {object_name, size}; null when none was made.
function M.report()
    return txn.run(function()
        return state('consistency') or box.NULL
    end)
end

return M
