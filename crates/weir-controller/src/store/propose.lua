-- ARGV: epoch, finality, text.
local epoch, finality = tonumber(ARGV[1]), tonumber(ARGV[2])
if is_over(epoch, finality) then
  return false
end
local number = text(next_number())
redis.call('MSET', prefix .. 'decided:number', number, prefix .. 'decided:epoch', text(epoch),
  prefix .. 'decided:finality', text(finality), prefix .. 'decided:text', ARGV[3])
redis.call('PUBLISH', prefix .. 'news', 'decision')
return number
