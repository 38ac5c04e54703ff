-- What all steps on the store share; see Ledger. KEYS[1] is what all our keys begin with. Numbers are below 2^53.
local prefix = KEYS[1]

local function get(name)
  return tonumber(redis.call('GET', prefix .. name) or '0')
end

local function text(number)
  return string.format('%.0f', number)
end

local function raise(floor)
  redis.call('SET', prefix .. 'counter', text(math.max(get('counter'), floor)))
end

local function next_number()
  local number = get('counter') + 1
  redis.call('SET', prefix .. 'counter', text(number))
  return number
end

local function state_changed()
  redis.call('SET', prefix .. 'epoch', text(next_number()))
  redis.call('DEL', prefix .. 'tallies')
  redis.call('PUBLISH', prefix .. 'news', 'state')
end

local function now_ms()
  local time = redis.call('TIME')
  return time[1] * 1000 + math.floor(time[2] / 1000)
end

local function prolong(server, lifetime_ms)
  redis.call('HSET', prefix .. 'servers', server, text(now_ms() + lifetime_ms))
end

-- After a pause, in which nobody was heard, every server has a whole lifetime.
local function forget_expired(lifetime_ms, pause_ms)
  local found, now = false, now_ms()
  local paused = now - get('asked') > pause_ms
  redis.call('SET', prefix .. 'asked', text(now))
  local servers = redis.call('HGETALL', prefix .. 'servers')
  for at = 1, #servers, 2 do
    if paused then
      prolong(servers[at], lifetime_ms)
    elseif tonumber(servers[at + 1]) <= now then
      redis.call('DEL', prefix .. 'documents:' .. servers[at])
      redis.call('HDEL', prefix .. 'servers', servers[at])
      found = true
    end
  end
  return found
end

local function is_over(epoch, finality)
  if epoch ~= get('epoch') then
    return true
  end
  return get('decided:epoch') == epoch and get('decided:finality') >= finality
end

-- Epoch, number and text of the last decision, and each server with its documents.
local function read()
  local servers = {}
  for _, server in ipairs(redis.call('HKEYS', prefix .. 'servers')) do
    servers[#servers + 1] = { server, redis.call('HGETALL', prefix .. 'documents:' .. server) }
  end
  local decided = redis.call('GET', prefix .. 'decided:text') or ''
  return { text(get('epoch')), text(get('decided:number')), decided, servers }
end
