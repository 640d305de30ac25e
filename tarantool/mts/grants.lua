-- Who may call what. Closes what Tarantool leaves open to anyone, and gives the application's user execute on the
-- functions named in `api` and `spec_api`, nothing else.
local api = require('mts.api')
local fio = require('fio')
local spec_api = require('mts.spec_api')

local M = {}

-- By default an unauthenticated guest can run Lua through SQL, and list users.
local function close_the_open_doors()
    for _, name in ipairs{'LUA', 'box.schema.user.info'} do
        if box.schema.func.exists(name) then
            box.schema.role.revoke('public', 'execute', 'function', name, {if_exists = true})
        end
    end
    box.schema.user.revoke('guest', 'public', nil, nil, {if_exists = true})
    -- Without this, a query over nothing but itself (WITH RECURSIVE) could keep the server busy for ever.
    box.schema.user.disable('guest')
end

local function read_password(path)
    local file = assert(fio.open(path, {'O_RDONLY'}), 'cannot read MTS_TARANTOOL_PASSWORD_FILE')
    local text = file:read(4096)
    file:close()
    return (text:gsub('%s+$', ''))
end

local function expose(name, fn, user)
    rawset(_G, name, fn)
    box.schema.func.create(name, {if_not_exists = true, setuid = true})
    box.schema.user.grant(user, 'execute', 'function', name, {if_not_exists = true})
end

function M.apply(options)
    close_the_open_doors()
    box.schema.user.create(options.user, {if_not_exists = true})
    if options.password_file then
        box.schema.user.passwd(options.user, read_password(options.password_file))
    end
    box.schema.user.revoke(options.user, 'public', nil, nil, {if_exists = true})
    for _, functions in ipairs{api, spec_api} do
        for name, fn in pairs(functions) do
            expose(name, fn, options.user)
        end
    end
end

return M
