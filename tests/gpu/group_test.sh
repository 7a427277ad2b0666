#!/usr/bin/env bash
# Workers of two GPUs in real processes: two tensor ranks, then two stages, beside a worker of one GPU. The answers of both equal
# those of one GPU. Then a rank of each group is killed and one loses its GPU, in the middle of requests: the whole group ends within
# a second, and the requests end on another worker with the same tokens. Prints its progress, writes OUT/group.json, exits with 1
# when a check failed.
#   group_test.sh BIN MODEL OUT       BIN: the folder of baton-router and the others, and of libgpu_trap.so
# MODEL has an even number of KV heads. Settings from the environment: DEVICES ("cuda:0 cuda:1"), WORKER_SET (further --set,
# separated by blanks). LD_LIBRARY_PATH must contain the folder of libnccl.so.2.
# shellcheck disable=SC2154,SC2119  # "equal" and "leaked" set variables
set -uo pipefail

readonly BIN=$1 MODEL=$2 OUT=$3
read -r FIRST_DEVICE SECOND_DEVICE <<<"${DEVICES-cuda:0 cuda:1}"
readonly REQUESTS=${REQUESTS-16} TOKENS=${TOKENS-768} LIMIT=${LIMIT-120}
WORKER_SET=${WORKER_SET-}
# shellcheck source=tests/gpu/cluster.sh
. "$(dirname "${BASH_SOURCE[0]}")/cluster.sh"

# start_group NAME SHAPE: SHAPE is tensor_parallel or pipeline_parallel.
start_group() {
  start_worker decode "$1" "$FIRST_DEVICE" unified=true "engine.$2=2" \
    "engine.devices=[\"$FIRST_DEVICE\",\"$SECOND_DEVICE\"]"
}

# lose VARIABLE NAME SHAPE SIGNAL: starts a group NAME and sends SIGNAL to its follower, while requests run. Sets VARIABLE to the
# milliseconds after which both processes have ended.
lose() {
  local name=$2 begin follower leader
  PRELOAD=$BIN/libgpu_trap.so
  start_group "$name" "$3"
  PRELOAD=
  await_joined "$name"
  leader=${pids[$name]}
  follower=$(pgrep -P "$leader" | head -1)
  ask_all "$name"
  await "$name" baton_worker_sequences_running 'v > 0'
  say "$4 to process $follower, rank 1 of $name, while $(metric "$name" baton_worker_sequences_running) requests run there"
  begin=$(date +%s%N)
  kill "-$4" "$follower"
  await_end "$leader" || fail "the leader of $name still runs after 10 seconds"
  await_end "$follower" || fail "the follower of $name still runs after 10 seconds"
  printf -v "$1" '%s' $((($(date +%s%N) - begin) / 1000000))
  kill -9 "$leader" "$follower" 2>/dev/null
  wait "$leader" 2>/dev/null
  unset "pids[$name]"
  wait_all "$name"
}

start_router --set policy=round_robin
start_worker decode alone "$FIRST_DEVICE" unified=true
ask_all unified
wait_all unified
stop_all

start_router --set policy=round_robin
start_group tensor tensor_parallel
ask_all tensor
wait_all tensor
equal tensor_equal tensor
leaked tensor_leaked tensor
stop_all

start_router --set policy=round_robin
start_group stages pipeline_parallel
ask_all stages
wait_all stages
equal stages_equal stages
leaked stages_leaked stages
stop_all

start_router --set policy=round_robin
start_worker decode stays "$FIRST_DEVICE" unified=true
lose killed_ms killed pipeline_parallel KILL
equal killed_equal killed
lose lost_ms lost pipeline_parallel USR2
equal lost_equal lost
lose tensor_killed_ms tensor_killed tensor_parallel KILL
equal tensor_killed_equal tensor_killed
leaked stays_leaked stays
for took in "$killed_ms" "$lost_ms" "$tensor_killed_ms"; do
  ((took <= 1000)) || fail "a group ended $took ms after one of its ranks"
done

cat >"$OUT/group.json" <<JSON
{"test": "group", "requests": $REQUESTS, "tokens": $TOKENS, "devices": ["$FIRST_DEVICE", "$SECOND_DEVICE"],
 "tensor": {"equal_to_one_gpu": $tensor_equal},
 "stages": {"equal_to_one_gpu": $stages_equal},
 "killed": {"ended_ms": $killed_ms, "equal": $killed_equal}, "device_lost": {"ended_ms": $lost_ms, "equal": $lost_equal},
 "tensor_killed": {"ended_ms": $tensor_killed_ms, "equal": $tensor_killed_equal}, "leaked_blocks": $((tensor_leaked + stages_leaked + stays_leaked)),
 "failures": $failures}
JSON
cat "$OUT/group.json"
((failures == 0))
