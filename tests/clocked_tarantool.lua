-- Tarantool as the stack runs it, with a clock that tests move: `clock_advance(seconds)`.
local fiber = require('fiber')

local folder = os.getenv('MTS_TEST_LUA_FOLDER')
package.path = folder .. '/?.lua;' .. package.path

local real, ahead = fiber.time, 0
fiber.time = function()
    return real() + ahead
end
require('mts.api').clock_advance = function(_, seconds)
    ahead = ahead + seconds
    return ahead
end

dofile(folder .. '/init.lua')
