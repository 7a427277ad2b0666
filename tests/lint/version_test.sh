#!/usr/bin/env bash
# The version of a build follows from the latest tag v* of its checkout (cmake/BatonVersion.cmake).
set -uo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd) || exit 2
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
failures=0
cat >"$tree/version.cmake" <<SCRIPT
include($root/cmake/BatonVersion.cmake)
baton_version(version $tree/checkout 0.1.0)
message(STATUS "version \${version}")
SCRIPT

# expect WHEN PATTERN: expects a version that matches the pattern, a regular expression.
expect() {
  local version
  version=$(cmake -P "$tree/version.cmake" | sed -n 's/^-- version //p')
  if [[ ! $version =~ ^$2$ ]]; then
    failures=$((failures + 1))
    printf '%s: the version is "%s"; it must match %s\n' "$1" "$version" "$2"
  fi
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
expect "without a tag v*" '0\.1\.0'
in_checkout tag v1.2.3
expect "at a tag" '1\.2\.3'
in_checkout commit -q --allow-empty -m second
expect "after a tag" '1\.2\.3\+1\.g[0-9a-f]+'
in_checkout tag -a -m release v1.3.0-rc1
expect "at an annotated tag" '1\.3\.0-rc1'

((failures == 0)) || exit 1
echo "the version follows the tags"
