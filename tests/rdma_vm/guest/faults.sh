#!/bin/bash
# Garbage in handshakes, links that go down and delayed packets; then writes over a link that loses packets.
failures=0
run_tests rdma_guest_test 'Rdma*' || failures=$((failures + 1))

tc qdisc add dev veth0 root netem loss 1%
tc qdisc add dev veth1 root netem loss 1%
run_tests rdma_guest_test \
  '*AWriteArrives/verbs:*ABigScatteredWriteArrives/verbs:*NothingLandsAfter*/verbs' || failures=$((failures + 1))
tc -s qdisc show dev veth0
tc -s qdisc show dev veth0 | grep -q 'dropped [1-9]' || {
  echo "the link lost no packet, so the test with loss has shown nothing"
  failures=$((failures + 1))
}
exit "$failures"
