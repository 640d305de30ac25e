-- Taking over an installation of the first server: its messages come in the order of their sequences and keep them,
-- with their times and the names of their objects. Nothing else is published meanwhile, so that no number is given
-- twice and no reader passes by a message. State `import` says how far it got: every step is safe to run again.
local ceiling = require('mts.ceiling')
local commit = require('mts.commit')
local errors = require('mts.errors')
local partition = require('mts.partition')
local quarantine = require('mts.quarantine')
local recovery = require('mts.recovery')
local schema = require('mts.schema')
local subjects = require('mts.subject')
local txn = require('mts.txn')

local M = {}

local KEY, STATE = 'import', 'importing'

local function stored()
    local row = box.space.state:get(KEY)
    return row and row[schema.state.value]
end

local function store(value)
    box.space.state:replace{KEY, value}
end

local function need_importing()
    if recovery.state() ~= STATE then
        errors.refuse('recovery_conflict', 'no import is under way here')
    end
end

-- `source` names the installation: an import that was interrupted goes on with the same one only.
function M.begin(source)
    local known = stored()
    if known ~= nil then
        if known.source ~= source then
            errors.refuse('recovery_conflict', 'another installation was imported here', {source = known.source})
        end
        return known
    end
    if recovery.state() ~= nil and recovery.state() ~= STATE then
        errors.refuse('recovery_conflict', 'a restore is under way, or waits to be decided on')
    end
    if commit.given() > 0 then
        errors.refuse('recovery_conflict', 'this Tarantool holds messages: an import begins with an empty one')
    end
    recovery.set(STATE) -- first: nobody shall publish if this ends between the two
    known = {source = source, upto = 0, done = false}
    txn.run(function()
        store(known)
    end)
    return known
end

-- Rows {sequence, headers, object_name, subject, create_at, size, content_type, is_missing}, in the order of their
-- sequences; `is_missing` where there is no payload, which readers are told from the first moment on. What is here
-- already is passed over. Answers how many were taken.
function M.apply(rows)
    need_importing()
    return txn.run(function(effects)
        local known, taken = stored(), 0
        for _, row in ipairs(rows) do
            local sequence, headers, object_name, subject, create_at, size, content_type, is_missing = unpack(row, 1, 8)
            if sequence > known.upto then
                local lane = partition.lane_for(subjects.ensure(subject), {})
                commit.adopt(effects, subject, lane, {headers = headers, object_name = object_name, count = 1,
                    size = size, content_type = schema.present(content_type)}, sequence, create_at)
                if is_missing then
                    quarantine.note(sequence, sequence, 'missing')
                end
                taken = taken + 1
                known.upto = sequence
            end
        end
        store(known)
        return taken
    end)
end

-- Numbers go on behind this one: also a message that is gone by now had one.
function M.go_on_behind(sequence)
    need_importing()
    if sequence > ceiling.get().top then
        errors.refuse('unavailable', 'the bucket does not know of so high a sequence yet')
    end
    return commit.go_on_behind(sequence)
end

function M.finish()
    local known = stored()
    known.done = true
    txn.run(function()
        store(known)
    end)
    if recovery.state() == STATE then
        recovery.clear()
    end
    return true
end

return M
