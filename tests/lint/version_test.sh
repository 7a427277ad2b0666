#!/usr/bin/env bash
# The versions of packages and builds follow from the latest tag v* of their checkout (cmake/BatonVersion.cmake).
set -uo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd) || exit 2
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
failures=0
cat >"$tree/version.cmake" <<SCRIPT
include($root/cmake/BatonVersion.cmake)
baton_version(version $tree/checkout 0.1.0)
message(STATUS "version \${version}")
baton_build_version(version $tree/checkout 0.1.0)
message(STATUS "build \${version}")
SCRIPT

# expect WHEN PATTERN [BUILD]: expects a version, and the version of a build, that match these regular expressions.
# Without BUILD both have the same pattern.
expect() {
  local kind version pattern
  for kind in version build; do
    pattern=$2
    [[ $kind == build ]] && pattern=${3:-$2}
    version=$(cmake -P "$tree/version.cmake" | sed -n "s/^-- $kind //p")
    if [[ ! $version =~ ^$pattern$ ]]; then
      failures=$((failures + 1))
      printf '%s: the %s is "%s"; it must match %s\n' "$1" "$kind" "$version" "$pattern"
    fi
  done
}
in_checkout() {
  git -C "$tree/checkout" -c user.name=test -c user.email=test@localhost "$@"
}

mkdir "$tree/checkout"
expect "without git" '0\.1\.0'
git -c init.defaultBranch=main init -q "$tree/checkout"
expect "without a commit" '0\.1\.0'
in_checkout commit -q --allow-empty -m first
in_checkout tag nightly
commit='g[0-9a-f]{7,40}'
expect "without a tag v*" '0\.1\.0' "0\.1\.0\+$commit"
echo 1 >"$tree/checkout/file"
in_checkout add file
expect "changed, without a tag v*" '0\.1\.0' "0\.1\.0\+$commit\.dirty"
in_checkout commit -q -m file
in_checkout tag v1.2.3
expect "at a tag" '1\.2\.3'
in_checkout commit -q --allow-empty -m second
expect "after a tag" "1\.2\.3\+1\.$commit"
echo 2 >"$tree/checkout/file"
expect "changed after a tag" "1\.2\.3\+1\.$commit" "1\.2\.3\+1\.$commit\.dirty"
in_checkout tag -a -m release v1.3.0-rc1
expect "changed at an annotated tag" '1\.3\.0-rc1' '1\.3\.0-rc1\+dirty'
in_checkout checkout -q file
expect "at an annotated tag" '1\.3\.0-rc1'

((failures == 0)) || exit 1
echo "the version follows the tags"
