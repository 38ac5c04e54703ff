-- ARGV: floor.
raise(tonumber(ARGV[1]))
return { text(next_number()), read() }
