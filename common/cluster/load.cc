#include "common/cluster/load.h"

#include <algorithm>

namespace baton {

PeerTraffic& PeerTraffic::operator+=(const PeerTraffic& other) {
  if (transport.empty()) transport = other.transport;
  bytes += other.bytes;
  transfers += other.transfers;
  if (bytes_per_second == 0) bytes_per_second = other.bytes_per_second;
  if (not_taken.empty()) not_taken = other.not_taken;
  writes += other.writes;
  resent_blocks += other.resent_blocks;
  checksum_errors += other.checksum_errors;
  fences += other.fences;
  open += other.open;
  quarantined_blocks += other.quarantined_blocks;
  oldest_ms = std::max(oldest_ms, other.oldest_ms);
  return *this;
}

}  // namespace baton
