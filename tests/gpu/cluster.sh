# Functions that the scripts of this folder share: starting the processes of a cluster, sending requests, comparing answers.
# The caller sets BIN, MODEL, OUT, REQUESTS, TOKENS, LIMIT (seconds) and WORKER_SET (further --set of workers, separated by
# blanks). It may set PRELOAD (a library to load into workers), DETERMINISTIC (engine.deterministic of workers, true), SENTENCES
# (above the most of a prompt), SAMPLING (mixed: not only greedy requests) and CONCURRENT (requests at a time).
# shellcheck shell=bash

declare -A pids http
failures=0
mkdir -p "$OUT"

say() { printf '%s %s\n' "$(date +%T.%N | cut -c1-12)" "$*" >&2; }
fail() { say "FAILED: $*"; failures=$((failures + 1)); }
stop_all() { for name in "${!pids[@]}"; do kill -9 "${pids[$name]}" 2>/dev/null; wait "${pids[$name]}" 2>/dev/null; done; pids=(); http=(); }
trap stop_all EXIT

# launch NAME COMMAND…: runs the command, whose output goes to $OUT/NAME.ready.
launch() {
  local name=$1
  shift
  : >"$OUT/$name.ready"
  "$@" >"$OUT/$name.ready" 2>>"$OUT/$name.log" &
  pids[$name]=$!
}

# await_ready NAME: waits until the process prints its line `ready {…}`.
await_ready() {
  local name=$1 i
  for ((i = 0; i < LIMIT * 50; i++)); do
    if grep -q '^ready' "$OUT/$name.ready"; then
      http[$name]=$(address "$name" http)
      return 0
    fi
    kill -0 "${pids[$name]}" 2>/dev/null || break
    sleep 0.02
  done
  fail "$name does not start: $(tail -1 "$OUT/$name.log")"
  exit 1
}

# start NAME COMMAND…
start() {
  launch "$@"
  await_ready "$1"
}

# address NAME PORT: prints the address of a port from the process's ready line.
address() { grep -o "\"$2\":\"[^\"]*\"" "$OUT/$1.ready" | head -1 | cut -d'"' -f4; }

# byte_tokenizer: prints a tokenizer.json with a token for each byte. Bytes that are not printable have characters from 256 on.
byte_tokenizer() {
  local byte code one more=256 vocab=
  for ((byte = 0; byte < 256; byte++)); do
    code=$byte
    if ((byte < 33 || (byte > 126 && byte < 161) || byte == 173)); then code=$((more++)); fi
    printf -v one '"\\u%04x":%d,' "$code" "$byte"
    vocab+=$one
  done
  local level='{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true}'
  printf '{"version":"1.0","added_tokens":[],"normalizer":null,"pre_tokenizer":%s,"post_processor":null,"decoder":%s,' "$level" "$level"
  printf '"model":{"type":"BPE","vocab":{%s},"merges":[]}}\n' "${vocab%,}"
}

# model_with_tokenizer: prints MODEL, or a copy of MODEL in OUT with byte_tokenizer when MODEL is a folder without a tokenizer.
model_with_tokenizer() {
  local copy=$OUT/${MODEL##*/}
  if [[ ! -d $MODEL || -f $MODEL/tokenizer.json ]]; then
    echo "$MODEL"
    return
  fi
  mkdir -p "$copy"
  cp "$MODEL"/* "$copy"
  byte_tokenizer >"$copy/tokenizer.json"
  echo "$copy"
}

# start_router [FLAG…]
start_router() {
  start router "$BIN/baton-router" --set router_id=router --set "model.path=\"$MODEL\"" "$@"
}

# launch_worker ROLE NAME DEVICE [SETTING…]
launch_worker() {
  local role=$1 name=$2 device=$3 setting settings=()
  shift 3
  for setting in "$@" $WORKER_SET; do settings+=(--set "$setting"); done
  launch "$name" env ${PRELOAD:+"LD_PRELOAD=$PRELOAD"} "$BIN/baton-$role" --set "worker_id=$name" --set "model.path=\"$MODEL\"" \
    --set "routers=[\"$(address router workers)\"]" --set "engine.device=$device" \
    --set "engine.deterministic=${DETERMINISTIC-true}" --set engine.kv_memory_mib=4096 "${settings[@]}"
}

# start_worker ROLE NAME DEVICE [SETTING…]
start_worker() {
  launch_worker "$@"
  await_ready "$2"
}

# await_end PID: waits up to 10 seconds until the process has ended. A zombie has ended: nobody may reap an orphan at once.
await_end() {
  local i
  for ((i = 0; i < 1000; i++)); do
    [[ $(awk '{print $3}' "/proc/$1/stat" 2>/dev/null) =~ ^[^Z] ]] || return 0
    sleep 0.01
  done
  return 1
}

# get NAME PATH: prints an HTTP response, without curl.
get() {
  local host=${http[$1]%:*} port=${http[$1]##*:}
  exec 9<>"/dev/tcp/$host/$port" || return 1
  printf 'GET %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n' "$2" >&9
  cat <&9
  exec 9>&-
}

# await_joined NAME: waits until the worker has joined its router.
await_joined() {
  local i
  for ((i = 0; i < LIMIT * 50; i++)); do
    if [[ $(get "$1" /readyz 2>/dev/null | head -1) == *" 200 "* ]]; then return 0; fi
    sleep 0.02
  done
  fail "$1 did not join the router within $LIMIT seconds"
}

# metric NAME METRIC: prints the metric's value, or -1.
metric() {
  local value
  value=$(get "$1" /metrics 2>/dev/null | tr -d '\r' | awk -v m="$2" '$1 == m {print $2; exit}')
  echo "${value:--1}"
}

# await NAME METRIC CONDITION: waits until the awk expression CONDITION holds, in which v is the metric's value.
await() {
  local i
  for ((i = 0; i < LIMIT * 50; i++)); do
    if metric "$1" "$2" | awk "{v=\$1; exit !($3)}"; then return 0; fi
    sleep 0.02
  done
  fail "$2 of $1 is $(metric "$1" "$2"); expected $3 within $LIMIT seconds"
  return 1
}

# prompt_of NUMBER: a prompt of 40 to 1,600 bytes; SENTENCES allows longer ones. It differs from all others from its first words on.
prompt_of() {
  local number=$1 i text="Story number $1 of the relay team begins:"
  for ((i = 0; i < number * 7 % ${SENTENCES:-26}; i++)); do text+=" Runner $((i + 1)) waited at mark $((number * 10 + i)) for the baton."; done
  printf '%s' "$text"
}

# sampling_of NUMBER: the flags of a request. With SAMPLING=mixed three of four requests are sampled, each with its own seed.
sampling_of() {
  local kind=0
  [[ ${SAMPLING-} == mixed ]] && kind=$(($1 % 4))
  case $kind in
    0) echo --temperature 0 ;;
    1) echo --temperature 0.8 --seed "$1" ;;
    2) echo --temperature 1 --top-p 0.9 --seed "$1" ;;
    3) echo --temperature 0.7 --top-k 40 --seed "$1" ;;
  esac
}

# ask_one NAME NUMBER: leaves the answer in $OUT/NAME.NUMBER.json.
ask_one() {
  local -a sampling
  read -ra sampling <<<"$(sampling_of "$2")"
  "$BIN/baton" generate "$(prompt_of "$2")" --server "$server" --json --raw --ignore-eos "${sampling[@]}" --max-tokens "$TOKENS" \
    --timeout-ms $((LIMIT * 1000)) >"$OUT/$1.$2.json" 2>"$OUT/$1.$2.err"
}

# ask_all NAME: sends all requests and returns at once: at the same time, or CONCURRENT at a time. wait_all waits for the answers.
ask_all() {
  local server
  server=$(address router grpc)
  rm -f "$OUT/$1".*.json
  {
    for ((i = 0; i < REQUESTS; i++)); do
      while (($(jobs -rp | wc -l) >= ${CONCURRENT:-REQUESTS})); do wait -n; done
      ask_one "$1" "$i" &
    done
    wait
  } &
  pids[requests]=$!
}
wait_all() {
  local i
  wait "${pids[requests]}"
  unset 'pids[requests]'
  for ((i = 0; i < REQUESTS; i++)); do
    [[ -n $(tokens_of "$OUT/$1.$i.json") ]] || fail "request $i of $1: $(tail -1 "$OUT/$1.$i.err")"
  done
}

tokens_of() { grep -o '"tokens":\[[^]]*\]' "$1"; }

# first_difference WANTED FOUND: prints the first token in which two answers differ, and details of the second answer.
first_difference() {
  local i
  local -a wanted found
  IFS=, read -ra wanted <<<"$(tokens_of "$1" | tr -dc '0-9,')"
  IFS=, read -ra found <<<"$(tokens_of "$2" | tr -dc '0-9,')"
  for ((i = 0; i < ${#wanted[@]} && i < ${#found[@]}; i++)); do
    [[ ${wanted[i]} == "${found[i]}" ]] || break
  done
  echo "token $i of ${#found[@]}: ${found[*]:i:5} instead of ${wanted[*]:i:5};" \
    "$(grep -o '"prompt_tokens":[0-9]*\|"attempts":[0-9]*\|"cached_tokens":[0-9]*' "$2" | tr '\n' ' ')"
}

# same VARIABLE NAME OTHER: sets VARIABLE to the number of answers NAME that equal the answers OTHER. Prints the first differences.
same() {
  local i count=0 name=$2 other=$3
  for ((i = 0; i < REQUESTS; i++)); do
    if [[ -n $(tokens_of "$OUT/$other.$i.json") && $(tokens_of "$OUT/$other.$i.json") == "$(tokens_of "$OUT/$name.$i.json")" ]]; then
      count=$((count + 1))
    elif ((i - count < 3)); then
      say "$name: request $i differs from $other: $(first_difference "$OUT/$other.$i.json" "$OUT/$name.$i.json")"
    fi
  done
  printf -v "$1" '%s' "$count"
}

# equal VARIABLE NAME: sets VARIABLE to the number of answers NAME that equal the answers "unified", which must be all.
equal() {
  same "$1" "$2" unified
  ((${!1} == REQUESTS)) || fail "$2: ${!1} of $REQUESTS answers equal the unified worker's"
}

# leaked VARIABLE NAME…: sets VARIABLE to the number of blocks that these workers leaked, once no request runs.
leaked() {
  local name sum=0
  for name in "${@:2}"; do
    await "$name" baton_worker_sequences_running 'v == 0'
    await "$name" baton_worker_sequences_waiting 'v == 0'
    await "$name" baton_kv_cache_utilization 'v == 0'
    sum=$(awk "BEGIN {print $sum + $(metric "$name" baton_kv_leaked_blocks)}")
  done
  [[ $sum == 0 ]] || fail "$sum blocks leaked"
  printf -v "$1" '%s' "$sum"
}
