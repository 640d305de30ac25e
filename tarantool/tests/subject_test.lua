-- Positions (rule 17), subjects made again (rule 21), and messages that nobody verified (rule 32).
package.path = require('fio').dirname(require('fio').abspath(arg[0])) .. '/?.lua;' .. package.path
local harness = require('harness')
local message = require('mts.message')
local schema = require('mts.schema')
local spec_api = require('mts.spec_api')
local tap = require('tap')

local test = tap.test('subjects')
test:plan(3)

test:test('a position moves neither back nor beyond the last message', function(t)
    t:plan(3)
    local last = spec_api.publish_message('positions', {})
    t:is(harness.refusal(spec_api.update_consumer_position, 'd', 'positions', last + 1), 'bad_request', 'not beyond')
    spec_api.update_consumer_position('d', 'positions', last)
    spec_api.update_consumer_position('d', 'positions', last - 1)
    t:ok(spec_api.get_consumer_position('d', 'positions') == last, 'not back')
    t:is(spec_api.get_consumer_position('e', 'positions'), 0, 'and nobody else moved')
end)

test:test('an upload of a subject that was deleted and made again is rejected', function(t)
    t:plan(5)
    local old = harness.ticket('again', 1).upload
    box.space.subject:delete('again')
    t:is(harness.commit(old.id, 1).reason, 'subject_deleted', 'while there is none')
    local second = harness.ticket('again', 1).upload
    box.space.subject:delete('again')
    local new = harness.ticket('again', 1).upload
    t:isnt(second.object_name:match('^m/again/(%d+)/'), new.object_name:match('^m/again/(%d+)/'), 'another key')
    t:is(harness.commit(second.id, 1).state, 'rejected', 'and after it was made again')
    t:ok(box.space.trash:get(second.object_name), 'its payload goes')
    t:is(harness.commit(new.id, 1).state, 'committed', 'the new one lives')
end)

test:test('a message made without a ticket is marked and counted apart', function(t)
    t:plan(3)
    local made = spec_api.publish_message('legacy', 'somewhere/else.json', {})
    harness.commit(harness.ticket('legacy', 1).upload.id, 1)
    t:is(message.get(made)[schema.message.unverified], true, 'marked')
    local counted = box.space.partition:get{'legacy', 0}
    t:is(counted[schema.partition.messages], 2, 'both are messages')
    t:is(counted[schema.partition.unverified], 1, 'one is not verified')
end)

harness.finish(test)
