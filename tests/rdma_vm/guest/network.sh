# shellcheck shell=bash
# Soft-RoCE devices in pairs, for the scripts of the guest to include. Pair N is rxe(2N) and rxe(2N+1) on the
# two ends of a pair of virtual Ethernet devices, veth(2N) at 10.0.N.1 and veth(2N+1) at 10.0.N.2. rdma_rxe of
# this kernel works in the first network namespace only. There Linux would keep packets between two of its own
# addresses off the wire, so that neither loss nor a dead link could be tested; the rules below send the
# packets over the pair.

# route END PEER_END OWN_ADDRESS PEER_ADDRESS: sets what is lost when the link goes down.
route() {
  ip neigh replace "$4" lladdr "$(cat "/sys/class/net/veth$2/address")" dev "veth$1"
  ip route replace "$4/32" dev "veth$1" src "$3" table $((101 + $1))
}

# route_pair PAIR
route_pair() {
  route $((2 * $1)) $((2 * $1 + 1)) "10.0.$1.1" "10.0.$1.2"
  route $((2 * $1 + 1)) $((2 * $1)) "10.0.$1.2" "10.0.$1.1"
}

# attach END OWN_ADDRESS PEER_ADDRESS
attach() {
  local end=$1 own=$2 peer=$3
  ip link set "veth$end" mtu 4200 # makes RDMA packets of 4096 bytes possible
  ip addr add "$own/32" dev "veth$end"
  ip link set "veth$end" up
  echo 1 >"/proc/sys/net/ipv4/conf/veth$end/accept_local"
  echo 0 >"/proc/sys/net/ipv4/conf/veth$end/rp_filter"
  ip rule add pref 1 iif "veth$end" lookup local                  # packets that arrive are for this machine
  ip rule add pref 2 from "$own" to "$peer" lookup $((101 + end)) # packets that leave take the pair
}

# make_rail_pairs COUNT
make_rail_pairs() {
  local pair even odd
  for ((pair = 0; pair < $1; ++pair)); do
    even=$((2 * pair)) odd=$((2 * pair + 1))
    ip link add "veth$even" type veth peer name "veth$odd"
    attach "$even" "10.0.$pair.1" "10.0.$pair.2"
    attach "$odd" "10.0.$pair.2" "10.0.$pair.1"
    route_pair "$pair"
  done
  ip rule add pref 10 lookup local
  ip rule del pref 0
  for ((pair = 0; pair < $1; ++pair)); do
    rdma link add "rxe$((2 * pair))" type rxe netdev "veth$((2 * pair))"
    rdma link add "rxe$((2 * pair + 1))" type rxe netdev "veth$((2 * pair + 1))"
  done
}
