return read()
