#!/bin/sh
# Runs the command "$@" on one of two hosts, which are network namespaces that only a pair of devices joins. The
# command finds both addresses, the network, and of the second host a process and a folder for temporary files
# in its environment. Exit status 77: this machine does not allow namespaces.
set -eu
export BATON_HOST_NETWORK=10.77.0.0/24 BATON_FIRST_HOST=10.77.0.1 BATON_SECOND_HOST=10.77.0.2

if [ "${1:-}" != --inside ]; then
  if ! unshare --user --map-root-user --net true; then
    echo "NOT TESTED: ranks on two hosts need user and network namespaces (unshare --user --net)" >&2
    exit 77
  fi
  exec unshare --user --map-root-user --net --kill-child --fork "$0" --inside "$@"
fi
shift

# OpenMPI tells hosts apart by their names, and keeps files of a host below TMPDIR.
unshare --net --uts sh -c "hostname second-host; exec sleep infinity" &
second=$!
BATON_SECOND_HOST_FOLDER=$(mktemp -d)
export BATON_SECOND_HOST_PROCESS=$second BATON_SECOND_HOST_FOLDER
trap 'kill $second; rm -rf "$BATON_SECOND_HOST_FOLDER"' EXIT
# unshare has left our namespace once the links of the two differ.
while [ "$(readlink /proc/self/ns/net)" = "$(readlink /proc/$second/ns/net)" ]; do sleep 0.01; done
ip link set lo up
ip link add first type veth peer name second netns "$second"
ip addr add "$BATON_FIRST_HOST/24" dev first
ip link set first up
nsenter --target "$second" --net sh -c "ip link set lo up; ip addr add $BATON_SECOND_HOST/24 dev second; ip link set second up"
"$@"
