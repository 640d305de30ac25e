-- A pack: many small messages in one object, committed together. Each group of consecutive frames of one subject
-- becomes an extent; a frame that is a duplicate, must wait or goes to another partition ends the extent before it.
local clock = require('mts.clock')
local errors = require('mts.errors')
local judge = require('mts.pack_judge')
local object = require('mts.object')
local runs = require('mts.pack_run')
local schema = require('mts.schema')
local subjects = require('mts.subject')
local transaction_pack = require('mts.transaction_pack')
local ttl = require('mts.ttl')
local txn = require('mts.txn')

local M = {}

local function commit_group(effects, pack, group)
    local walk = runs.new(effects, pack, group)
    for index = 0, #group.sizes - 1 do
        local mark = walk.marks[index]
        local result = (mark or walk.is_limited) and judge.judge(walk, index, mark)
        if result then
            runs.skip(walk, index, result)
        else
            runs.join(walk, index, mark)
        end
        walk.position = walk.position + group.sizes[index + 1] + schema.FRAME_PREFIX
    end
    runs.close(walk, #group.sizes)
    return walk
end

-- Commits or stages every group. Returns the answers, how many rows point at the pack, and the first refusal of a
-- whole group.
local function commit_groups(effects, pack)
    local answers, refs, refused = {}, 0, nil
    effects.blocked = {}
    for _, group in ipairs(pack.groups) do
        local answer, held
        if group.transaction_id ~= nil then
            local stage = pack.all_or_none and transaction_pack.stage or transaction_pack.stage_each
            answer, held = stage(pack, group)
            refused = refused or answer.error
        else
            local walk = commit_group(effects, pack, group)
            answer, held = {runs = walk.runs, others = walk.others,
                retention = ttl.class(group.subject, subjects.find(group.subject))}, walk.refs
        end
        refs = refs + held
        table.insert(answers, answer)
    end
    return answers, refs, refused
end

-- A batch in a transaction may lie in several groups, one a codec: all of it is staged, or nothing.
local function stage_all(effects, pack)
    local before = box.savepoint()
    local answers, refs, refused = commit_groups(effects, pack)
    if refused == nil then
        return answers, refs
    end
    box.rollback_to_savepoint(before)
    for index = 1, #answers do
        answers[index] = {error = refused}
    end
    return answers, 0
end

-- Commit a pack that is in the bucket and that nobody knows, whatever its age; false when somebody does. `also()` runs
-- in the same transaction, if anything of it became visible.
function M.adopt(pack, also)
    return txn.run(function(effects)
        if object.in_trash(pack.object_name) or box.space.object:get(pack.object_name) ~= nil then
            return false
        end
        local answers, refs = commit_groups(effects, pack)
        if refs > 0 then
            object.create(pack.object_name, refs)
            if also then
                also()
            end
        end
        return answers
    end)
end

-- Commit a pack {object_name, groups = {{subject, headers, content_type, codec, byte_from, sizes, own, marks}, ...}}
-- that is in the bucket; marks are {index, producer_id, seqno, epoch, key, digest, group, hash}. For each group: `runs`
-- {{first index, count, sequence, partition, offset}, ...}, `others`, the frames that got another answer, and the
-- `retention` class of its subject; a group with a `transaction_id` is answered by transaction_pack.lua. `all_or_none`
-- marks a batch in a transaction; other packs hold what came in separate requests, of which each is answered for
-- itself. A pack older than half of the grace is refused: it may be in the trash soon.
function M.commit(pack, grace)
    local results = txn.run(function(effects)
        local age = clock.milliseconds() - clock.id_time(pack.object_name:match('([^/]+)$'))
        if age > grace * 500 or object.in_trash(pack.object_name) then
            if box.space.object:get(pack.object_name) == nil then
                object.discard(pack.object_name, 'old_pack')
            end
            return nil
        end
        local commit_all = pack.all_or_none and stage_all or commit_groups
        local answers, refs = commit_all(effects, pack)
        object.create(pack.object_name, refs)
        return answers
    end)
    if results == nil then
        errors.refuse('unavailable', 'this took too long and was given up; send it again')
    end
    return results
end

return M
