-- What fsck asks: counts that hold for one moment while rows come and go, and the mending of wrong ones.
package.path = require('fio').dirname(require('fio').abspath(arg[0])) .. '/?.lua;' .. package.path
local harness = require('harness')
local audit = require('mts.audit')
local clock = require('mts.clock')
local deletion = require('mts.deletion')
local errors = require('mts.errors')
local fiber = require('fiber')
local message = require('mts.message')
local object = require('mts.object')
local quarantine = require('mts.quarantine')
local recovery = require('mts.recovery')
local schema = require('mts.schema')
local subject_admin = require('mts.subject_admin')
local tap = require('tap')
local txn = require('mts.txn')

local F, P = schema.message, schema.partition
local test = tap.test('audit')
test:plan(9)

local function lane_of(subject)
    for _, lane in ipairs(audit.lanes('', 0).lanes) do
        if lane.subject == subject then
            return lane
        end
    end
end

local function agrees(lane)
    return lane.messages == tonumber(lane.counters.messages) and lane.bytes == tonumber(lane.counters.bytes)
        and lane.unverified == tonumber(lane.counters.unverified)
end

test:test('rows come page by page with the bytes they need', function(t)
    t:plan(3)
    local first = tonumber(harness.publish('rows', 3))
    local row = audit.rows(first - 1, 1)[1]
    t:is_deeply({tonumber(row[1]), tonumber(row[2]), tonumber(row[4]), tonumber(row[5])}, {first + 2, 3, 9, 54})
    t:is(#audit.rows(first + 2, 10), 0)
    t:is_deeply({audit.rows_at({first + 2, 999999})[1][2], #audit.rows_at({first + 2, 999999})}, {false, 1})
end)

test:test('counters agree with rows while these come and go', function(t)
    t:plan(3)
    for _ = 1, 3000 do
        harness.append('busy', 0)
    end
    local stop, published, removed = false, 0, 0
    local worker = fiber.new(function()
        while not stop do
            harness.append('busy', 0)
            published = published + 1
            local row = box.space.message.index.subject_sequence:select({'busy'}, {limit = 1})[1]
            txn.run(function() message.remove(row, 'test') end)
            removed = removed + 1
            pcall(txn.run, function()
                message.remove(box.space.message.index.subject_sequence:select({'busy'}, {limit = 1})[1], 'test')
                errors.refuse('no', 'taken back')
            end)
        end
    end)
    worker:set_joinable(true)
    local wrong = 0
    for _ = 1, 20 do
        wrong = wrong + (agrees(lane_of('busy')) and 0 or 1)
    end
    stop = true
    worker:join()
    t:is(wrong, 0)
    t:ok(published > 10 and removed > 10, 'they did')
    t:ok(agrees(lane_of('busy')))
end)

test:test('wrong counters are seen and mended', function(t)
    t:plan(4)
    harness.publish('miscounted', 3)
    box.space.partition:update({'miscounted', 0}, {{'=', P.messages, 7}, {'=', P.bytes, 1}})
    t:is(agrees(lane_of('miscounted')), false)
    t:is(audit.mend_lane('miscounted', 0).mended, true)
    t:ok(agrees(lane_of('miscounted')))
    t:is(tonumber(box.space.partition:get{'miscounted', 0}[P.next_offset]), 3)
end)

test:test('a lane without counters is seen and mended', function(t)
    t:plan(3)
    harness.publish('uncounted', 3)
    box.space.partition:delete{'uncounted', 0}
    t:is(lane_of('uncounted').counters, nil)
    audit.mend_lane('uncounted', 0)
    t:ok(agrees(lane_of('uncounted')))
    t:is(tonumber(box.space.partition:get{'uncounted', 0}[P.next_offset]), 3)
end)

test:test('rows of a deleted subject are not counted as those of the new one', function(t)
    t:plan(1)
    for _ = 1, 600 do
        harness.append('reborn', 0)
    end
    subject_admin.delete('reborn', 900) -- clears 500 rows at once
    harness.publish('reborn', 2)
    t:is_deeply({lane_of('reborn').messages, agrees(lane_of('reborn'))}, {2, true})
end)

test:test('what points at objects is known at one moment', function(t)
    t:plan(5)
    local first = harness.publish('pointing', 3)
    local pack = message.locate(first)[F.object_name]
    local ticket = harness.ticket('pointing', 5)
    local found = audit.names{pack, ticket.upload.object_name, 'm/none/1/x'}
    t:is_deeply({found[pack].rows, tonumber(found[pack].refs), found[pack].trash}, {1, 1, false})
    t:is(found[ticket.upload.object_name].upload, 'open')
    t:is_deeply({found['m/none/1/x'].rows, found['m/none/1/x'].upload}, {0, nil})
    deletion.message(first + 1, 'api', '')
    t:is_deeply({audit.names{pack}[pack].rows, tonumber(audit.names{pack}[pack].refs)}, {2, 2})
    box.space.object:update(pack, {{'=', schema.object.refs, 9}})
    audit.mend_refs{pack}
    t:is(tonumber(box.space.object:get(pack)[schema.object.refs]), 2)
end)

test:test('only what nothing points at goes to the trash as an orphan', function(t)
    t:plan(6)
    local function uuid_at(seconds)
        return clock.id_start(clock.milliseconds() - seconds * 1000) .. '000-8000-000000000000'
    end
    local orphan = 'm/pointing/1/' .. uuid_at(10)
    local ticket = harness.ticket('pointing', 5)
    local held = message.locate(harness.publish('pointing', 1))[F.object_name]
    local young, old = '_mts/packs/' .. uuid_at(10), '_mts/packs/' .. uuid_at(7200)
    local done = audit.discard_orphans({orphan, ticket.upload.object_name, held, young, old}, 3600)
    t:is_deeply({done[orphan].mended, done[old].mended}, {true, true})
    t:is_deeply({done[held].mended, done[young].mended, done[ticket.upload.object_name].mended},
        {false, false, false})
    t:is_deeply({object.in_trash(orphan), object.in_trash(held)}, {true, false})
    t:is(audit.discard_orphans({orphan}, 3600)[orphan].mended, false, 'once')
    recovery.set('pending')
    t:is(harness.refusal(audit.discard_orphans, {orphan}, 3600), 'recovery_conflict', 'rule 30')
    recovery.clear()
    t:is(audit.summary().recovery, nil)
end)

test:test('rows are kept apart and released', function(t)
    t:plan(4)
    local first = tonumber(harness.publish('apart', 2))
    local name = message.locate(first)[F.object_name]
    quarantine.add{{first + 1, name, 'missing'}}
    t:is(audit.summary().missing, 1)
    t:is(audit.rows(first - 1, 1)[1][7], true)
    t:is(quarantine.release{first + 1, 12345}, 2)
    t:is(message.get(first)[17], nil)
end)

test:test('the latest report is known, and the one before it goes', function(t)
    t:plan(3)
    t:is(audit.report(), nil)
    audit.put_report{object_name = '_mts/fsck/1', size = 10}
    audit.put_report{object_name = '_mts/fsck/2', size = 20}
    t:is(audit.report().object_name, '_mts/fsck/2')
    t:is(object.in_trash('_mts/fsck/1'), true)
end)

harness.finish(test)
