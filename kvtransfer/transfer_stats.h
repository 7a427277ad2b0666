#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "common/base/clock.h"
#include "common/base/ids.h"

namespace baton {

// The statistics of one hand-off, as measured by one side.
struct TransferStats {
  std::string transport;  // the transport that moved the data; empty if nothing was moved
  uint64_t bytes = 0;
  uint32_t blocks = 0;         // moved, of all cache groups
  uint32_t cached_blocks = 0;  // blocks of tokens that the receiver had already
  uint32_t resent_blocks = 0;  // blocks of tokens
  Duration wait{};             // OFFER → GRANT
  Duration stream{};           // first byte ready to send (receiver: GRANT) → last byte in place
  Duration total{};            // OFFER → end
  // Sender: bytes divided by the time during which writes were outstanding. Receiver: bytes divided
  // by `stream`.
  double bytes_per_second = 0;
};

// Gauges and counters of one KvSender or KvReceiver for one peer.
struct PeerTransferStats {
  std::string transport;  // in use; "shm+tcp" if the links use different transports
  // Sender: why the transports that are preferred to `transport` are not in use. Empty: the first
  // choice is in use.
  std::string not_taken;
  uint64_t writes = 0;           // write operations since the start
  uint64_t resent_blocks = 0;    // sender: blocks written again, because they arrived damaged
  uint64_t checksum_errors = 0;  // receiver: blocks that arrived damaged
  uint64_t fences = 0;           // sender: drains that only a fence ended
  uint32_t open = 0;             // hand-offs under way
  // Sender: the rate at which bytes were acknowledged lately, also of hand-offs under way. 0: not
  // known (LinkWatch).
  double bytes_per_second = 0;
  uint32_t quarantined_blocks = 0;
  Duration oldest{};  // the age of the oldest hand-off under way
};

// Gauges and counters of one KvSender or KvReceiver.
struct KvTransferStats {
  uint32_t peers = 0;
  uint32_t offered = 0;    // sessions waiting for a grant (sender: or parked after a refusal)
  uint32_t streaming = 0;  // granted, not finished
  uint32_t draining = 0;
  uint32_t quarantined = 0;         // sessions whose end cannot be proven; not 0: alarm
  uint32_t quarantined_blocks = 0;  // blocks of these sessions
  uint64_t finished = 0;            // hand-offs that succeeded since the start
  uint64_t cancelled = 0;           // hand-offs that a worker cancelled since the start
  uint64_t failed = 0;              // hand-offs that failed since the start
  uint64_t refused = 0;
  uint64_t bytes = 0;
  uint64_t ops = 0;
  uint64_t checksum_errors = 0;    // receiver: blocks that arrived damaged
  uint64_t rejected_messages = 0;  // about an unknown session or an old epoch
  std::map<WorkerId, PeerTransferStats> by_peer;
};

}  // namespace baton
