package.path = require('fio').dirname(require('fio').abspath(arg[0])) .. '/?.lua;' .. package.path
local harness = require('harness')
local commit = require('mts.commit')
local fiber = require('fiber')
local message = require('mts.message')
local pack = require('mts.pack')
local schema = require('mts.schema')
local spec_api = require('mts.spec_api')
local tap = require('tap')

local F = schema.message
local test = tap.test('sequences')
test:plan(6)

test:test('the watermark is reached only by what is durable, in order', function(t)
    t:plan(2)
    local inversions, done = 0, 0
    for _ = 1, 200 do
        fiber.create(function()
            for _ = 1, 10 do
                local sequence = spec_api.publish_message('load', {})
                if commit.watermark() < sequence or message.get(sequence) == nil then
                    inversions = inversions + 1
                end
            end
            done = done + 1
        end)
    end
    while done < 200 do
        fiber.sleep(0.01)
    end
    t:is(inversions, 0, 'an answered message is visible')
    t:is(spec_api.get_subject_message_count('load'), 2000, 'and counted')
end)

for _, start in ipairs{1000000000000000ULL, 9007199254740993ULL} do
    test:test('order holds at ' .. tostring(start), function(t)
        t:plan(8)
        box.sequence.message:set(start)
        commit.start()
        local subject = 'high' .. tostring(start):match('%d+')
        local first = pack.commit(harness.pack{{subject = subject, sizes = {1, 2, 3}}}, 3600)[1].runs[1][3]
        t:ok(first == start + 1, 'the next sequence follows')
        t:ok(message.get(start + 2)[F.sequence] == start + 2, 'a message in the pack is found')
        t:is(message.get(start + 2)[F.size], 2, 'with its own size')
        local ticket = harness.ticket(subject, 4, {producer_id = 'p', seqno = start}).upload
        t:ok(harness.commit(ticket.id, 4).sequence == start + 4, 'an upload follows the pack')
        t:ok(harness.ticket(subject, 4, {producer_id = 'p', seqno = start}).receipt.sequence == start + 4,
            'a large seqno is proof')
        local page = message.page(subject, start + 2, 2)
        t:ok(page.next_sequence == start + 4, 'pages go on at the right place')
        t:ok(message.latest(subject) == start + 4, 'the latest is right')
        t:ok(message.count_after(subject, start + 1) == 3, 'three stand behind the first')
    end)
end

test:test('the specification\'s functions answer as it says', function(t)
    t:plan(15)
    local first = spec_api.publish_message('orders', 'minio/orders/123.json', {source = 'api'})
    local second = spec_api.publish_message('orders', {source = 'web'})
    local tuple = spec_api.get_message_by_sequence(first)
    t:is_deeply({tuple[2], tuple[3], tuple[4]}, {{source = 'api'}, 'minio/orders/123.json', 'orders'}, 'five fields')
    local decoded = spec_api.get_message_by_sequence_decoded(second)
    t:is(decoded.object_name, 'orders_' .. tostring(second):match('%d+'), 'the short form names the object')
    t:is(spec_api.get_message_by_sequence(second + 100), nil, 'nothing there')
    t:is(#spec_api.get_messages_by_subject('orders', first, 10), 2, 'both by subject')
    t:ok(spec_api.get_latest_sequence_for_subject('orders') == second, 'the latest')
    t:is(spec_api.get_latest_sequence_for_subject('none'), 0, 'none is 0')
    t:is(spec_api.get_subject_message_count('orders'), 2, 'counted')
    t:is(spec_api.get_consumer_position('d', 'orders'), 0, 'no position yet')
    t:is(spec_api.update_consumer_position('d', 'orders', first), true, 'position set')
    spec_api.update_consumer_position('d', 'orders', first - 1)
    t:ok(spec_api.get_consumer_position('d', 'orders') == first, 'it never moves back')
    t:is(#spec_api.get_consumers_by_subject('orders'), 1, 'consumers by subject')
    t:ok(spec_api.get_new_messages_count('orders', 'd') == 1, 'one new by durable')
    t:ok(spec_api.get_new_messages_count('orders', nil, 0) == 2, 'two since 0')
    t:is(spec_api.check_new_messages('orders', 'd').has_new, true, 'there is a new one')
    local number = spec_api.get_next_sequence()
    t:ok(spec_api.publish_message('orders', {}) > number, 'a number given is never given again')
end)

test:test('a pack expands for the specification', function(t)
    t:plan(2)
    pack.commit(harness.pack{{subject = 'expand', sizes = {1, 2, 3}}}, 3600)
    local rows = spec_api.get_messages_by_subject('expand', 0, 2)
    t:is(#rows, 2, 'a tuple a message')
    t:is(rows[2][F.size], 2, 'with its size')
end)

test:test('what no reader could be shown is not published by the specification, and changes nothing', function(t)
    local many = {}
    for number = 1, 65 do
        many['h' .. number] = ''
    end
    local wrong = {
        {'a b', {}}, {'', {}}, {'.hidden', {}}, {('a'):rep(241), {}}, {7, {}}, {'\255', {}},
        {'named', '', {}}, {'named', '\255', {}}, {'named', ('k'):rep(1025), {}}, {'named', 7, {}},
        {'named', {size = 1}}, {'named', {flag = true}}, {'named', {nested = {}}}, {'named', {'listed'}},
        {'named', 'object', 'text'},
        {'named', {a = '\255'}}, {'named', {['\255'] = 'a'}}, {'named', {[''] = 'a'}}, {'named', many},
        {'named', {a = ('x'):rep(16 * 1024)}},
    }
    t:plan(#wrong + 5)
    local before = commit.given()
    for _, arguments in ipairs(wrong) do
        t:is(harness.refusal(spec_api.publish_message, unpack(arguments)), 'bad_request', 'refused')
    end
    t:is(commit.given(), before, 'no number was used up')
    t:is(box.space.subject:get('named'), nil, 'no subject was made')
    local _, problem = pcall(spec_api.publish_message, 'a b', {})
    t:like(tostring(problem), '^`subject` must be', 'a refusal is its text')
    many.h65, many.h64 = nil, ('x'):rep(16 * 1024 - 183)
    t:ok(spec_api.publish_message(('a'):rep(240), 'objects/\208\182', many), 'up to the bounds it is taken')
    t:ok(spec_api.publish_message('named', box.NULL, box.NULL), 'and without headers')
end)

harness.finish(test)
