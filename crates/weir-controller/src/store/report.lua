-- ARGV: server, its lifetime in ms, what is a pause in ms, whether this is all of it (1) or what changed (0), floor; then for
-- each document its name, whether it is there (1) or gone (0), and its text.
local server, documents = ARGV[1], prefix .. 'documents:' .. ARGV[1]
local new, complete = redis.call('HEXISTS', prefix .. 'servers', server) == 0, ARGV[4] == '1'
if new and not complete then
  return false
end
local changed = new or complete or #ARGV > 5
prolong(server, tonumber(ARGV[2]))
if complete then
  redis.call('DEL', documents)
end
for at = 6, #ARGV, 3 do
  if ARGV[at + 1] == '1' then
    redis.call('HSET', documents, ARGV[at], ARGV[at + 2])
  else
    redis.call('HDEL', documents, ARGV[at])
  end
end
changed = forget_expired(tonumber(ARGV[2]), tonumber(ARGV[3])) or changed
raise(tonumber(ARGV[5]))
if changed then
  state_changed()
end
return text(get('epoch'))
