-- ARGV: server, its lifetime in ms, what is a pause in ms.
local known = redis.call('HEXISTS', prefix .. 'servers', ARGV[1])
if known == 1 then
  prolong(ARGV[1], tonumber(ARGV[2]))
end
if forget_expired(tonumber(ARGV[2]), tonumber(ARGV[3])) then
  state_changed()
end
return { known, text(get('decided:number')) }
