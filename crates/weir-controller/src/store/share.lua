-- ARGV: epoch, decision maker, its tally.
if is_over(tonumber(ARGV[1]), 2) then
  return false
end
redis.call('HSET', prefix .. 'tallies', ARGV[2], ARGV[3])
return redis.call('HVALS', prefix .. 'tallies')
