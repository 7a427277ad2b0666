#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "common/base/clock.h"
#include "common/base/ids.h"

namespace baton {

// One hand-off as its side saw it.
struct TransferStats {
  std::string transport;  // that moved the data; empty when nothing was moved
  uint64_t bytes = 0;
  uint32_t blocks = 0;         // moved
  uint32_t cached_blocks = 0;  // that the receiver had already
  uint32_t resent_blocks = 0;
  Duration wait{};    // OFFER → GRANT
  Duration stream{};  // first byte ready to go (receiver: GRANT) → last byte in place
  Duration total{};   // OFFER → end
  // Sender: bytes over the time that writes were outstanding. Receiver: bytes over `stream`.
  double bytes_per_second = 0;
};

// Gauges and counters of one KvSender or KvReceiver.
struct KvTransferStats {
  uint32_t peers = 0;
  uint32_t offered = 0;    // sessions waiting for a grant (sender: or refused and parked)
  uint32_t streaming = 0;  // granted, not finished
  uint32_t draining = 0;
  uint32_t quarantined = 0;         // sessions whose end cannot be proven: alarm when not 0
  uint32_t quarantined_blocks = 0;  // theirs
  uint64_t finished = 0;            // since the start: handed over
  uint64_t called_off = 0;          // since the start: a worker wanted them no more
  uint64_t failed = 0;              // since the start: ended otherwise
  uint64_t refused = 0;
  uint64_t bytes = 0;
  uint64_t ops = 0;
  uint64_t checksum_errors = 0;                // receiver: blocks that arrived damaged
  uint64_t rejected_messages = 0;              // malformed, or about nothing known
  std::map<WorkerId, std::string> transports;  // in use, by peer
};

}  // namespace baton
