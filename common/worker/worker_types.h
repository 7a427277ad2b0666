#pragma once

#include <cstdint>
#include <string>

#include "common/base/clock.h"
#include "common/base/hash.h"
#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/engine/request.h"

// What routers and workers say to each other, in our own types (proto/worker.proto is the wire).
namespace baton {

// One joining of one router: a new number for every stream, so that what belonged to a lost stream
// is never sent on its successor.
using RouterKey = StrongId<struct RouterKeyTag, uint64_t>;

// The other worker of a hand-off.
struct KvPeer {
  WorkerId worker;
  BootId boot;
  std::string address;  // of its KvControl service; empty when it dials us
};

// A request to serve. `request.kind` says how; session and peer are set for kPrefill and kDecode.
struct DispatchOrder {
  RouterKey router;
  Request request;
  SessionId session;
  KvPeer peer;
};

// Offer the KV of a prefilled request, which a peer refused, to another one.
struct RedirectOrder {
  RequestId id;
  Epoch epoch;  // of the request here
  SessionId session;
  Epoch decode_epoch;  // of the request there, and of the session
  KvPeer peer;
};

// How a hand-off went, for the router.
struct HandoffReport {
  // kNotNeeded: the first token ended every sample, so that there was nothing to hand over.
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

// What one peer's transfers added up to, for heartbeats.
struct PeerTraffic {
  std::string transport;
  uint64_t bytes = 0;
  uint64_t transfers = 0;
  double bytes_per_second = 0;  // of the last one, while bytes moved; 0 where only the sender knows

  // Adds what went the other way, of a peer that both prefills and decodes.
  PeerTraffic& operator+=(const PeerTraffic& other) {
    if (transport.empty()) transport = other.transport;
    bytes += other.bytes;
    transfers += other.transfers;
    if (bytes_per_second == 0) bytes_per_second = other.bytes_per_second;
    return *this;
  }
};

// What a worker says of itself when it joins a router.
struct WorkerIdentity {
  WorkerId id;
  BootId boot;
  bool can_prefill = false;
  bool can_decode = false;
  std::string model;
  Hash128 fingerprint;  // of spec and weights
  Hash128 shape;        // of the spec alone
  Hash128 tokenizer;    // zero: not known here
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
  Duration itl_target{};  // EngineOptions::itl_target, of a worker that decodes
};

// Whether another worker may succeed where this one failed with `status`.
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
