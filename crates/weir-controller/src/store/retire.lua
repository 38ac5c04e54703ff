-- ARGV: server.
if forget(ARGV[1]) then
  state_changed()
end
return 1
