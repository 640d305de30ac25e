module minitoolstream/bench/loadgen

go 1.24
