#!/bin/sh
# The rsh agent of an mpirun whose hosts are all this machine (`mpirun --mca plm_rsh_agent`): starts the
# command of host $1 here. Each host has a folder of its own for OpenMPI's files.
host=$1
shift
TMPDIR=${TMPDIR:-/tmp}/baton-$host-$PPID
mkdir -p "$TMPDIR"
export TMPDIR
sh -c "$*"
status=$?
rm -rf "$TMPDIR"
exit $status
