#pragma once

#include <cstdint>
#include <string>

#include "common/base/clock.h"
#include "common/base/hash.h"
#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/engine/request.h"

// The messages between routers and workers in our own types. proto/worker.proto is the wire format.
namespace baton {

// Identifies one stream to one router. Each stream gets a new number, so that messages for a lost
// stream are never sent on the next one.
using RouterKey = StrongId<struct RouterKeyTag, uint64_t>;

// The other worker of a hand-off.
struct KvPeer {
  WorkerId worker;
  BootId boot;
  std::string address;  // of its KvControl service; empty when the peer dials this worker
};

// A request to compute, as `request.kind` states. Session and peer are set for kPrefill and
// kDecode.
struct DispatchOrder {
  RouterKey router;
  Request request;
  SessionId session;
  KvPeer peer;
};

// Offer the KV of a request again, under a new session, after a decode worker refused it.
struct RedirectOrder {
  RequestId id;
  Epoch epoch;  // of the request on this worker
  SessionId session;
  Epoch decode_epoch;  // of the request on the decode worker, and of the session
  KvPeer peer;
};

// The outcome of a hand-off, for the router.
struct HandoffReport {
  // kNotNeeded: the first token ended every sample, so there was nothing to hand over.
  enum class Outcome { kCommitted, kRefused, kFailed, kNotNeeded };
  RequestId id;
  Epoch epoch;
  Outcome outcome = Outcome::kFailed;
  Status status;  // why it was refused or failed
  uint64_t bytes = 0;
  Duration transfer{};
  double bytes_per_second = 0;
  std::string transport;
  int32_t reused_blocks = 0;
};

// Totals of the transfers with one peer, for heartbeats.
struct PeerTraffic {
  std::string transport;
  uint64_t bytes = 0;
  uint64_t transfers = 0;
  // Of the last transfer, over the time in which bytes moved. 0 on the receiver, which does not
  // know it.
  double bytes_per_second = 0;

  // Adds the transfers in the other direction, for a peer that both prefills and decodes.
  PeerTraffic& operator+=(const PeerTraffic& other) {
    if (transport.empty()) transport = other.transport;
    bytes += other.bytes;
    transfers += other.transfers;
    if (bytes_per_second == 0) bytes_per_second = other.bytes_per_second;
    return *this;
  }
};

// How a worker describes itself when it joins a router.
struct WorkerIdentity {
  WorkerId id;
  BootId boot;
  bool can_prefill = false;
  bool can_decode = false;
  std::string model;
  Hash128 fingerprint;  // of the model's spec and weights
  Hash128 shape;        // of the model's spec alone
  Hash128 tokenizer;    // of the model's tokenizer; zero: not known here
  Hash128 secret_probe;
  std::string kv_layout;
  std::string kv_address;
  std::string admin_address;
  std::string device;  // "cpu", "cuda:0"
  int32_t block_tokens = 0;
  int32_t blocks = 0;
  int32_t max_sequences = 0;
  int32_t max_step_tokens = 0;
  int32_t context_length = 0;
  int32_t vocabulary = 0;
  Duration itl_target{};  // EngineOptions::itl_target; set for a worker that decodes
};

// Whether another worker may succeed after this worker failed with `status`.
inline bool IsRetryable(const Status& status) {
  switch (status.code()) {
    case StatusCode::kInvalidArgument:
    case StatusCode::kOutOfRange:
    case StatusCode::kUnimplemented:
    case StatusCode::kDeadlineExceeded:
    case StatusCode::kCancelled:
      return false;
    default:
      return true;
  }
}

}  // namespace baton
