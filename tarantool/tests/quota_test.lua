-- Quotas (rule 19): reserved at the ticket, released when it ends without a message, asked of frames when they come.
package.path = require('fio').dirname(require('fio').abspath(arg[0])) .. '/?.lua;' .. package.path
local harness = require('harness')
local admin = require('mts.subject_admin')
local clock = require('mts.clock')
local message = require('mts.message')
local outcome = require('mts.upload_outcome')
local pack = require('mts.pack')
local quota = require('mts.quota')
local schema = require('mts.schema')
local spec_api = require('mts.spec_api')
local subjects = require('mts.subject')
local tap = require('tap')

local now = 1000
quota.now = function()
    return now
end

local test = tap.test('quotas')
test:plan(9)

local function reserved(subject)
    local row = box.space.reservation:get(subjects.find(subject)[schema.subject.incarnation])
    return row and {row[2], row[3]}
end

-- What became of each frame: the code of its refusal, or its state.
local function publish(subject, sizes, marks)
    local result = pack.commit(harness.pack{{subject = subject, sizes = sizes, marks = marks}}, 3600)[1]
    local codes = {}
    for index = 1, #sizes do
        codes[index] = 'committed'
    end
    for _, other in ipairs(result.others) do
        codes[other.index + 1] = other.error and other.error.code or other.state
    end
    return codes
end

test:test('tickets reserve messages and bytes, and what is over is refused', function(t)
    t:plan(6)
    admin.put('both', {quota = {messages = 3, bytes = 100}})
    harness.ticket('both', 60)
    t:is_deeply(reserved('both'), {1, 60}, 'reserved')
    local ok, refusal = pcall(harness.ticket, 'both', 41)
    t:is(not ok and refusal.code, 'quota_exceeded', 'too many bytes')
    t:is_deeply({refusal.details.quota, refusal.details.limit, refusal.details.used}, {'bytes', 100, 60}, 'and why')
    harness.ticket('both', 1)
    harness.ticket('both', 1)
    t:is(harness.refusal(harness.ticket, 'both', 1), 'quota_exceeded', 'too many messages')
    t:is_deeply(reserved('both'), {3, 62}, 'refusals reserve nothing')
    t:is(admin.get('both').messages, 0, 'and nothing is stored yet')
end)

test:test('what is reserved becomes what is stored at the commit, which never fails on it', function(t)
    t:plan(4)
    admin.put('turn', {quota = {messages = 2}})
    local one, two = harness.ticket('turn', 5).upload, harness.ticket('turn', 6).upload
    harness.commit(one.id, 5)
    t:is_deeply(reserved('turn'), {1, 6}, 'one is left')
    admin.put('turn', {quota = {messages = 1}})
    t:is(harness.commit(two.id, 6).state, 'committed', 'also when the quota was lowered meanwhile')
    t:is_deeply(reserved('turn'), {0, 0}, 'nothing is left')
    t:is(harness.refusal(harness.ticket, 'turn', 1), 'quota_exceeded', 'what is stored counts')
end)

test:test('aborted, expired and rejected uploads give back what they reserved, once', function(t)
    t:plan(5)
    admin.put('back', {quota = {messages = 3, bytes = 30}})
    local aborted, expired = harness.ticket('back', 10).upload, harness.ticket('back', 10).upload
    local rejected = harness.ticket('back', 10).upload
    outcome.abort(aborted.id, 900)
    outcome.abort(aborted.id, 900)
    t:is_deeply(reserved('back'), {2, 20}, 'an abort')
    harness.commit(rejected.id, 11)
    t:is_deeply(reserved('back'), {1, 10}, 'a payload that does not fit')
    local seconds = clock.seconds
    clock.seconds = function()
        return seconds() + 100000
    end
    outcome.expire(expired.id, 900)
    clock.seconds = seconds
    t:is_deeply(reserved('back'), {0, 0}, 'a ticket whose time is over')
    harness.commit(expired.id, 10)
    t:is_deeply(reserved('back'), {0, 0}, 'late events change nothing')
    t:ok(harness.ticket('back', 30).upload, 'all of it is free again')
end)

test:test('a packed upload counts its messages and their bytes, not its frames', function(t)
    t:plan(2)
    admin.put('packed', {quota = {messages = 4, bytes = 30}})
    local ticket = harness.ticket('packed', 9 + 30 + 3 * schema.FRAME_PREFIX, {sizes = {10, 10, 10}}).upload
    t:is_deeply(reserved('packed'), {3, 30}, 'reserved')
    harness.commit(ticket.id, ticket.size)
    t:is_deeply({reserved('packed'), admin.get('packed').bytes}, {{0, 0}, 30}, 'and stored')
end)

test:test('a frame over the quota is refused alone', function(t)
    t:plan(4)
    admin.put('frames', {quota = {bytes = 100}})
    t:is_deeply(publish('frames', {50, 60, 50, 1}), {'committed', 'quota_exceeded', 'committed', 'quota_exceeded'},
        'the large one and the one too many')
    t:is(admin.get('frames').bytes, 100, 'the others are stored')
    admin.put('frames', {quota = {bytes = 200}})
    local key = {{index = 0, key = 'k', digest = 'd'}}
    publish('frames', {100}, key)
    local again = pack.commit(harness.pack{{subject = 'frames', sizes = {100}, marks = key}}, 3600)[1].others[1]
    t:is(again.duplicate, true, 'what is stored already is answered, quota or not')
    t:is_deeply(publish('frames', {1}), {'quota_exceeded'}, 'and the rest is full')
end)

test:test('behind a refused frame its producer goes no further', function(t)
    t:plan(3)
    admin.put('order', {quota = {bytes = 100}})
    local marks = {{index = 0, producer_id = 'p', seqno = 1}, {index = 1, producer_id = 'p', seqno = 2},
        {index = 2, producer_id = 'p', seqno = 3}, {index = 3, producer_id = 'q', seqno = 1}}
    t:is_deeply(publish('order', {60, 60, 10, 10}, marks),
        {'committed', 'quota_exceeded', 'quota_exceeded', 'committed'}, 'others do')
    admin.put('order', {quota = {bytes = 1000}})
    t:is_deeply(publish('order', {60, 60, 10, 10}, marks), {'committed', 'committed', 'committed', 'committed'},
        'so that all of it can be sent again')
    t:is(admin.get('order').messages, 4, 'and is stored once')
end)

test:test('a frame that waits has its room reserved', function(t)
    t:plan(3)
    admin.put('waits', {quota = {messages = 2}})
    local open = harness.ticket('waits', 1, {producer_id = 'p', seqno = 1}).upload
    t:is_deeply(publish('waits', {5, 5}, {{index = 0, producer_id = 'p', seqno = 2},
        {index = 1, producer_id = 'p', seqno = 3}}), {'stored', 'quota_exceeded'}, 'as far as there is room')
    t:is_deeply(reserved('waits'), {2, 6}, 'reserved')
    harness.commit(open.id, 1)
    t:is_deeply({reserved('waits'), admin.get('waits').messages}, {{0, 0}, 2}, 'and then stored')
end)

test:test('a rate is kept, and who is over it is told when to come again', function(t)
    t:plan(7)
    admin.put('rate', {quota = {rate = 10}})
    t:is_deeply(publish('rate', {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1})[11], 'rate_limited', 'a second\'s worth at once')
    local ok, refusal = pcall(harness.ticket, 'rate', 1)
    t:is(not ok and refusal.code, 'rate_limited', 'tickets too')
    t:is(refusal.details.retry_after, 0.1, 'the next is free in a tenth of a second')
    now = now + 0.1
    t:ok(harness.ticket('rate', 1).upload, 'then it is')
    now = now + 100
    local sizes = {}
    for i = 1, 25 do
        sizes[i] = 1
    end
    t:ok(harness.ticket('rate', 300, {sizes = sizes}).upload, 'more than a second\'s worth waits for a full second')
    ok, refusal = pcall(harness.ticket, 'rate', 1)
    t:is(not ok and refusal.details.retry_after, 1.6, 'and owes the rest')
    now = now + 1.6
    t:ok(harness.ticket('rate', 1).upload, 'until it is paid')
end)

test:test('who has no quota has no rows, and what bypasses tickets is counted, not refused', function(t)
    t:plan(4)
    harness.ticket('free', 1)
    publish('free', {1, 1})
    t:is(reserved('free'), nil, 'no reservation')
    admin.put('counted', {quota = {messages = 1}})
    spec_api.publish_message('counted', {})
    spec_api.publish_message('counted', {})
    t:is(admin.get('counted').messages, 2, 'counted')
    t:is_deeply(publish('counted', {1}), {'quota_exceeded'}, 'and others see it')
    t:is(#message.page('counted', 0, 10).rows, 2, 'nothing more is there')
end)

harness.finish(test)
