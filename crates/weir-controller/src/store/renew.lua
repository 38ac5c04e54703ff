-- ARGV: server, its lifetime in ms.
local known = redis.call('HEXISTS', prefix .. 'servers', ARGV[1])
if known == 1 then
  prolong(ARGV[1], tonumber(ARGV[2]))
end
if forget_expired() then
  state_changed()
end
return { known, text(get('decided:number')) }
