std = "luajit"
max_line_length = 120
globals = {"box"}
read_globals = {"utf8"}
