-- Filters on headers, for pages, ordered readers and leases.
package.path = require('fio').dirname(require('fio').abspath(arg[0])) .. '/?.lua;' .. package.path
local harness = require('harness')
local consumer = require('mts.consumer')
local consumer_read = require('mts.consumer_read')
local delivery = require('mts.delivery')
local message = require('mts.message')
local scan = require('mts.scan')
local schema = require('mts.schema')
local session = require('mts.session')
local tap = require('tap')

local F = schema.message
local test = tap.test('filters')
test:plan(11)

local function equals(header, value)
    return {header = header, op = 'equals', value = value}
end

local function prefix(header, value)
    return {header = header, op = 'prefix', value = value}
end

local function offsets(rows)
    local found = {}
    for _, row in ipairs(rows) do
        for index = 0, row[F.count] - 1 do
            table.insert(found, tonumber(row[F.offset] - row[F.count] + 1 + index))
        end
    end
    return found
end

local function page(subject, conditions, start, limit)
    return message.page(subject, start or 0, limit or 100, nil, false, conditions)
end

-- Offsets 0..4: red, blue (own), red, nothing (own), red; 5..6: blue.
local function colours(subject)
    local first = harness.publish(subject, 5, {headers = {colour = 'red', kind = 'apple'},
        own = {{1, {colour = 'blue'}, 'x/y'}, {3, setmetatable({}, {__serialize = 'map'})}}})
    harness.publish(subject, 2, {headers = {colour = 'blueish', kind = 'plum'}})
    return first
end

local function conditions_hold(t, subject)
    t:plan(10)
    local first = colours(subject)
    t:is_deeply(offsets(page(subject, {equals('colour', 'red')}).rows), {0, 2, 4}, 'equals')
    t:is_deeply(offsets(page(subject, {prefix('colour', 'blue')}).rows), {1, 5, 6}, 'prefix, own headers too')
    t:is_deeply(offsets(page(subject, {equals('colour', 'red'), equals('kind', 'apple')}).rows), {0, 2, 4}, 'both')
    t:is_deeply(offsets(page(subject, {equals('colour', 'red'), equals('kind', 'plum')}).rows), {}, 'never both')
    t:is_deeply(offsets(page(subject, {equals('none', '')}).rows), {}, 'a header that is not there equals nothing')
    t:is_deeply(offsets(page(subject, {prefix('kind', '')}).rows), {0, 2, 4, 5, 6}, 'the empty prefix: it is there')
    local cut = page(subject, {equals('colour', 'red')}, first + 1, 1)
    t:is_deeply(offsets(cut.rows), {2}, 'the limit counts what matches')
    t:is(cut.rows[1][F.own], nil, 'with nothing of its neighbours')
    t:is_deeply(offsets(page(subject, {equals('colour', 'red')}, cut.next_sequence).rows), {4}, 'and it goes on there')
    local row = page(subject, {equals('colour', 'blue')}).rows[1]
    t:is_deeply({tonumber(row[F.byte_from]), tonumber(row[F.size]), row[F.own][1][3]}, {9 + 18, 10, 'x/y'},
        'a message keeps its place in the pack')
end

test:test('conditions hold on the headers a message has', function(t)
    conditions_hold(t, 'colours')
end)

test:test('what was passed over counts as looked at', function(t)
    t:plan(3)
    local first = colours('passed')
    local none = page('passed', {equals('colour', 'green')})
    t:is(#none.rows, 0, 'nothing there')
    t:ok(none.next_sequence == first + 7, 'and nothing to look at again')
    t:is(harness.refusal(page, 'passed', {{header = 'a', op = 'regex', value = 'b'}}), 'bad_request', 'no such op')
end)

test:test('a page that finds little ends after so many messages', function(t)
    t:plan(4)
    local real = scan.MOST_MESSAGES
    scan.MOST_MESSAGES = 6
    local first = colours('budget')
    local part = page('budget', {equals('colour', 'green')})
    t:ok(part.next_sequence == first + 6, 'in the middle of an extent')
    part = page('budget', {equals('colour', 'blueish')}, part.next_sequence)
    t:is_deeply(offsets(part.rows), {6}, 'the next one goes on there')
    scan.MOST_MESSAGES, scan.MOST_ROWS = real, 1
    part = page('budget', {equals('colour', 'green')})
    t:ok(part.next_sequence == first + 5, 'or after so many rows')
    t:ok(page('budget', {equals('colour', 'green')}, part.next_sequence).next_sequence == first + 7, 'to the end')
    scan.MOST_ROWS = 1000
end)

test:test('an ordered durable with a filter reads what matches and acks what it passed over', function(t)
    t:plan(4)
    local first = colours('ordered')
    consumer.put('ordered', 'd', {filter = {equals('colour', 'red')}})
    t:is(consumer.get('ordered', 'd').lag, 7, 'its lag counts all')
    local read = consumer_read.read('ordered', 'd', {limit = 10})
    t:is_deeply(offsets(read.rows), {0, 2, 4}, 'it reads three')
    consumer.ack('ordered', 'd', read.next_sequence - 1)
    t:is(consumer.get('ordered', 'd').lag, 0, 'and is done with all')
    t:ok(consumer.get('ordered', 'd').last_sequence == first + 6)
end)

test:test('a session with a filter too', function(t)
    t:plan(2)
    colours('session')
    consumer.put('session', 'd', {filter = {equals('colour', 'blueish')}})
    local joined = session.join('session', 'd', 's', 30)
    local read = consumer_read.read('session', 'd', {limit = 10, session_id = 's', epoch = joined.epoch})
    t:is_deeply(offsets(read.rows), {5, 6})
    session.ack('session', 'd', 's', joined.epoch, {{0, read.partitions[1].fence, read.next_sequence - 1}})
    t:is(consumer.get('session', 'd').lag, 0)
end)

test:test('an ack moves over what the filter leaves out behind it', function(t)
    t:plan(5)
    local first = colours('tail')
    consumer.put('tail', 'd', {filter = {equals('colour', 'red')}})
    t:ok(consumer.ack('tail', 'd', first).last_sequence == first + 1, 'to the next that it wants')
    t:is(consumer.ack('tail', 'd', first + 4).last_sequence, message.latest('tail'), 'or to the end')
    t:is(consumer.get('tail', 'd').lag, 0, 'and nothing is left')
    harness.publish('tail', 2, {headers = {colour = 'blue'}})
    t:is(consumer.get('tail', 'd').lag, 2, 'what came since is')
    consumer.ack('tail', 'd', first + 4)
    t:is(consumer.get('tail', 'd').lag, 0, 'until the next ack, also of the same')
end)

test:test('a split partition that ends in what the filter leaves out is read to its end', function(t)
    t:plan(5)
    local split, subjects, txn = require('mts.split'), require('mts.subject'), require('mts.txn')
    local first = colours('parent')
    txn.run(function() split.split(subjects.find('parent'), 0, 8) end)
    consumer.put('parent', 'd', {filter = {equals('colour', 'red')}})
    local joined = session.join('parent', 'd', 's', 30)
    t:is(#joined.partitions, 1, 'the parent first')
    session.ack('parent', 'd', 's', joined.epoch, {{0, joined.partitions[1].fence, first + 4}})
    t:is(#session.heartbeat('parent', 'd', 's', joined.epoch).partitions, 2, 'then its children')
    consumer.put('parent', 'none', {filter = {equals('colour', 'green')}})
    local other = session.join('parent', 'none', 's', 30)
    t:is(#other.partitions, 2, 'at once when nothing of it is wanted')
    consumer.put('parent', 'none', {filter = {equals('colour', 'red')}})
    t:is(#session.heartbeat('parent', 'none', 's', other.epoch).partitions, 1, 'another filter wants it')
    consumer.put('parent', 'none', {filter = {}})
    t:is(#session.heartbeat('parent', 'none', 's', other.epoch).partitions, 1, 'and so does none')
end)

test:test('a shared durable leases what matches, and the rest is done', function(t)
    t:plan(5)
    local first = colours('shared')
    consumer.put('shared', 'd', {mode = 'shared', filter = {equals('colour', 'red')}})
    local leased = delivery.lease('shared', 'd', 2, 30)
    t:is_deeply(offsets(leased.rows), {0, 2}, 'up to the limit')
    t:is(box.space.delivery:count{'d', 'shared'}, 2, 'a range for each run')
    t:is_deeply(offsets(delivery.lease('shared', 'd', 9, 30).rows), {4}, 'the rest')
    t:is(harness.refusal(delivery.ack, 'shared', 'd', leased.lease_id, {first + 1}), 'lease_lost',
        'what was passed over is not leased')
    delivery.ack('shared', 'd', leased.lease_id, {first, first + 2})
    t:is(consumer.get('shared', 'd').lag, 1, 'one is left')
end)

test:test('a lease that only passes over moves on', function(t)
    t:plan(2)
    colours('over')
    consumer.put('over', 'd', {mode = 'shared', filter = {equals('colour', 'green')}})
    t:is(#delivery.lease('over', 'd', 9, 30).rows, 0)
    t:is(consumer.get('over', 'd').lag, 0)
end)

for _, start in ipairs(harness.HIGH) do
    test:test('conditions hold at ' .. tostring(start), function(t)
        harness.go_on_after(start)
        conditions_hold(t, 'high' .. tostring(start):match('%d+'))
    end)
end

harness.finish(test)
