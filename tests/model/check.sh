#!/usr/bin/env bash
# check.sh MODEL holds|fails [-DMACRO=VALUE …]: lets Spin visit every state of a Promela model, and fails when the
# model's assertions do not hold, or do not fail, as stated.
set -euo pipefail
model=$(realpath "$1")
expected=$2
shift 2

command -v spin >/dev/null || {
  echo "spin is missing; ./dev test installs it with the packages of cmake/packages-test.txt" >&2
  exit 1
}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
spin -a "$@" "$model"
# -w: the generated program is Spin's.
cc -w -O2 -DSAFETY -DCOLLAPSE -o pan pan.c
./pan -m10000 -w22 >said 2>&1 || true
grep -E 'assertion violated|invalid end state|errors:|states, stored|elapsed' said || true
if grep -qE 'max search depth too small|out of memory|Warning: Search not completed' said && [[ $expected == holds ]]; then
  cat said
  echo "Spin has not visited every state" >&2
  exit 1
fi
case $expected in
  holds) grep -q 'errors: 0' said ;;
  fails) grep -q 'assertion violated' said ;;
  *) echo "'$expected' is neither holds nor fails" >&2 && exit 2 ;;
esac || {
  echo "the model's assertions were expected to be: $expected" >&2
  exit 1
}
