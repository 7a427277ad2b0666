#include "common/cluster/load.h"

namespace baton {

PeerTraffic& PeerTraffic::operator+=(const PeerTraffic& other) {
  if (transport.empty()) transport = other.transport;
  bytes += other.bytes;
  transfers += other.transfers;
  if (bytes_per_second == 0) bytes_per_second = other.bytes_per_second;
  return *this;
}

}  // namespace baton
