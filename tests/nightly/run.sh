#!/usr/bin/env bash
# Runs every check of the tree whole, in parts that end within 100 minutes each on two cores. What each part
# printed stays in build/nightly; a table of the parts that have run ends the output.
#
# usage: run.sh [--list | part …]      all parts without an argument
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 2
readonly LOGS=build/nightly MUTATION_PARTS=8

parts() {
  printf '%s\n' tests checks cuda arm64 asan tsan fuzz soak clients
  seq -f "mutate-%g" "$MUTATION_PARTS"
}

manifests() {
  if command -v kubectl >/dev/null; then ./dev manifests; else echo "NOT RUN: manifests: kubectl is not installed"; fi
}

# run_part NAME
run_part() {
  case $1 in
    tests) ./dev test && ./dev test -L rdma ;;
    checks) ./dev lint && ./dev tidy && ./dev package && manifests ;;
    cuda) ./dev cuda all ;;
    arm64) ./dev arm64 ;;
    asan) ./dev asan ;;
    tsan) ./dev tsan ;;
    fuzz) ./dev fuzz 240 ;;
    soak) ./dev test -L soak && ./dev test -L gemma ;;
    clients) ./dev clients all ;;
    mutate-*) ./dev mutate "${1#mutate-}/$MUTATION_PARTS" ;;
  esac
}

[[ ${1:-} != --list ]] || { parts; exit 0; }
mapfile -t all < <(parts)
(($#)) || set -- "${all[@]}"
for part in "$@"; do
  [[ " ${all[*]} " == *" $part "* ]] ||
    { echo "nightly: there is no part \"$part\"; the parts are: ${all[*]}" >&2; exit 2; }
done
mkdir -p "$LOGS"
table=()
failed=0
for part in "$@"; do
  begin=$SECONDS
  run_part "$part" 2>&1 | tee "$LOGS/$part.log"
  outcome=ok
  ((PIPESTATUS[0] == 0)) || { outcome="FAILED, see $LOGS/$part.log"; failed=$((failed + 1)); }
  table+=("$(printf '%-12s %6d s  %s' "$part" $((SECONDS - begin)) "$outcome")")
done
printf '\n%s, %s\n' "$(git rev-parse --short HEAD)" "$(nproc) cores"
printf '%s\n' "${table[@]}"
printf '\n%d parts passed, %d failed\n' $(($# - failed)) "$failed"
((failed == 0))
