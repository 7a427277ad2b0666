#!/bin/bash
# Measures hand-offs over verbs and, on the same devices, ib_write_bw and ib_write_lat of perftest. Prints one
# JSON object after the line "BENCH". Not a test: see bench/README.md.
seconds=3

# perftest NAME FLAG…: prints the last line of numbers of NAME between rxe0 and rxe1.
perftest() {
  local name=$1
  shift
  "$name" -d rxe1 -x 1 -u 16 -F "$@" >/tmp/server.log 2>&1 &
  sleep 2
  "$name" -d rxe0 -x 1 -u 16 -F "$@" 127.0.0.1 | grep -E '^ +[0-9]' | tail -1
  wait
}

# Columns of ib_write_bw: bytes, iterations, peak and average rate in MiB/s.
write_bw() {
  perftest ib_write_bw -q 4 -s "$1" -D "$seconds" | awk '{printf "{\"bytes\": %d, \"mib_per_s\": %s}", $1, $4}'
}
write_lat() {
  perftest ib_write_lat -s "$1" -n 1000 | awk '{printf "{\"bytes\": %d, \"typical_us\": %s}", $1, $5}'
}

handoffs=$(kv_transfer_bench "$seconds" verbs:rxe0 verbs:rxe1) || exit 1
echo BENCH
printf '{"machine": "QEMU TCG guest, %s, soft-RoCE", "handoffs": %s, "ib_write_bw": [%s, %s, %s], "ib_write_lat": [%s]}\n' \
  "$(uname -r)" "$handoffs" "$(write_bw 6144)" "$(write_bw 65536)" "$(write_bw 262144)" "$(write_lat 4096)"
