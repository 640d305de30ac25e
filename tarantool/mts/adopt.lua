-- What to do after a restore with objects that no row points at (rule 30): payloads whose messages the journal did not
-- reach. Whoever calls has compared the bucket with the rows; uploads, packs and the trash are compared here.
local commit = require('mts.commit')
local deletion = require('mts.deletion')
local errors = require('mts.errors')
local object = require('mts.object')
local outcome = require('mts.upload_outcome')
local packs = require('mts.pack')
local partitions = require('mts.partition')
local producer = require('mts.producer')
local recovery = require('mts.recovery')
local restore = require('mts.restore')
local schema = require('mts.schema')
local subjects = require('mts.subject')
local txn = require('mts.txn')

local U = schema.upload
local M = {}

local function need_pending()
    if recovery.state() ~= 'pending' then
        errors.refuse('recovery_conflict', 'nothing waits here to be adopted or discarded')
    end
end

local function upload_of(name)
    local id = object.upload_id(name)
    return id and box.space.upload:get(id)
end

local function is_known(name)
    local upload = upload_of(name)
    return object.in_trash(name) or box.space.object:get(name) ~= nil
        or (upload ~= nil and upload[U.reason] ~= restore.REASON)
end

-- Which of these names something other than a message knows: those are no orphans.
function M.known(names)
    return txn.run(function()
        local known = schema.array{}
        for place, name in ipairs(names) do
            known[place] = is_known(name)
        end
        return known
    end)
end

-- Messages of a pack, as new ones at the end of their subjects; what of them a producer has stored again since is left
-- out. `purge`: a deletion on record whose messages the pack holds too; they are taken out of it. Answers how many
-- became visible.
function M.pack(name, groups, purge)
    need_pending()
    local function erase()
        deletion.erase(name, purge)
    end
    local answers = packs.adopt({object_name = name, groups = groups}, schema.present(purge) and erase)
    local adopted = 0
    for _, answer in ipairs(answers or {}) do
        for _, run in ipairs(answer.runs) do
            adopted = adopted + run[2]
        end
    end
    return adopted
end

-- The sequence of a seqno that is stored, or why it cannot be stored any more; nil when it can.
local function hindrance(owner, seqno)
    local ok, sequence = pcall(producer.stored_sequence, owner, seqno)
    if ok and sequence == nil then
        return nil
    end
    return ok and 'duplicate' or sequence.code
end

-- A payload {subject, size, content_type, producer_id, seqno} under a name of ours, as a new message. Answers 1, or 0
-- when it belongs to something that ended or is stored already.
function M.payload(name, about)
    need_pending()
    return txn.run(function(effects)
        local ended = upload_of(name)
        if is_known(name) or (ended and ended[U.transaction_id] ~= nil) then
            return 0
        end
        local subject_row = subjects.ensure(about.subject)
        local named = schema.present(about.producer_id)
        if named then
            local owner = producer.ensure(subject_row, named)
            if hindrance(owner, about.seqno) or producer.first_pending(owner[schema.producer.no]) then
                return 0
            end
        end
        local lane = partitions.lane_for(subject_row, {producer_id = about.producer_id})
        local sequence = commit.append(effects, about.subject, lane, {headers = about.headers, object_name = name,
            count = 1, size = about.size, content_type = about.content_type})
        object.create(name, 1) -- known from now on to whoever decides beside this one
        if named then
            producer.record(about.subject, named, about.seqno, sequence, 1)
        end
        if ended then
            box.space.upload:delete(ended[U.id])
        end
        return 1
    end)
end

-- These go to the trash; those that something knows stay. Answers how many went.
function M.discard(names)
    need_pending()
    return txn.run(function()
        local discarded = 0
        for _, name in ipairs(names) do
            if not is_known(name) then
                object.discard(name, 'restored')
                discarded = discarded + 1
            end
        end
        return discarded
    end)
end

-- Uploads that were held: looked for by the reconciler again, or ended. From now on orphans are deleted as usual.
function M.finish(adopted, put_grace)
    need_pending()
    local held = {}
    restore.each(box.space.upload, function(row)
        if row[U.due_at] ~= schema.NEVER then
            return
        elseif row[U.reason] == restore.REASON and row[U.state] == 'aborted' then
            box.space.upload:delete(row[U.id])
        elseif not adopted then
            table.insert(held, row[U.id])
        elseif row[U.state] == 'open' then
            box.space.upload:update(row[U.id], {{'=', U.due_at, 0}})
        end
    end)
    for _, id in ipairs(held) do
        outcome.abort(id, put_grace)
    end
    recovery.clear()
    return #held
end

return M
