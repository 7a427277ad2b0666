#!/bin/sh
# Runs a worker whose ranks are in several pods of a LeaderWorkerSet, from the group's leader pod. The other
# pods run `baton host serve`. The arguments are the worker's command, as for a worker of one pod:
#     run_group.sh baton-decode --config /config/worker.config.yaml …
# Environment: LWS_LEADER_ADDRESS and LWS_GROUP_SIZE, from LeaderWorkerSet; RANKS_PER_POD (1); SECRET_FILE
# (/secrets/cluster/secret), the cluster's secret; HOST_AGENT, in place of `baton host run`.
set -eu
ranks_per_pod=${RANKS_PER_POD:-1}
agent=${HOST_AGENT:-baton host run --secret-file ${SECRET_FILE:-/secrets/cluster/secret}}

# The leader pod is <name>.<domain>, the other pods are <name>-1.<domain>, <name>-2.<domain>, …
name=${LWS_LEADER_ADDRESS%%.*}
domain=${LWS_LEADER_ADDRESS#*.}
hosts=$(hostname):$ranks_per_pod
pod=1
while [ "$pod" -lt "$LWS_GROUP_SIZE" ]; do
  hosts=$hosts,$name-$pod.$domain:$ranks_per_pod
  pod=$((pod + 1))
done

mpirun -n $((ranks_per_pod * LWS_GROUP_SIZE)) -H "$hosts" --bind-to none --leave-session-attached \
  --mca plm_rsh_agent "$agent" --mca plm_rsh_no_tree_spawn 1 --mca orte_keep_fqdn_hostnames 1 "$@" &
mpirun=$!

# mpirun would kill the ranks at SIGTERM. The worker drains instead, and then mpirun ends.
program=$(basename "$1")
# shellcheck disable=SC2317  # the trap calls it
drain() {
  read -r children <"/proc/$mpirun/task/$mpirun/children" || true
  for child in $children; do
    [ "$(cat "/proc/$child/comm")" = "$program" ] && kill -TERM "$child"
  done
  return 0
}
trap drain TERM INT
status=0
wait "$mpirun" || status=$?
# The signal ended the first wait.
while kill -0 "$mpirun" 2>/dev/null; do
  status=0
  wait "$mpirun" || status=$?
done
exit "$status"
