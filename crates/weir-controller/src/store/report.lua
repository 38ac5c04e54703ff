-- ARGV: server, its lifetime in ms, whether this is all of it (1) or what changed (0), floor; then for each document
-- its name, whether it is there (1) or gone (0), and its text.
local server, documents = ARGV[1], prefix .. 'documents:' .. ARGV[1]
local changed = redis.call('HEXISTS', prefix .. 'servers', server) == 0 or ARGV[3] == '1' or #ARGV > 4
prolong(server, tonumber(ARGV[2]))
if ARGV[3] == '1' then
  redis.call('DEL', documents)
end
for at = 5, #ARGV, 3 do
  if ARGV[at + 1] == '1' then
    redis.call('HSET', documents, ARGV[at], ARGV[at + 2])
  else
    redis.call('HDEL', documents, ARGV[at])
  end
end
changed = forget_expired() or changed
raise(tonumber(ARGV[4]))
if changed then
  state_changed()
end
return text(get('epoch'))
