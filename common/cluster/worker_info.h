#pragma once

#include <cstdint>
#include <string>

#include "common/base/clock.h"
#include "common/base/hash.h"
#include "common/base/ids.h"
#include "common/kvcache/kv_window.h"

namespace baton {

// What a worker states about itself when it joins a router.
struct WorkerInfo {
  WorkerId id;
  BootId boot;
  bool can_prefill = false;
  bool can_decode = false;
  std::string model;    // the name that clients use
  Hash128 fingerprint;  // of spec and weights (common/model/fingerprint.h)
  Hash128 shape;        // of the spec alone
  Hash128 tokenizer;    // zero: the worker has no tokenizer files
  Hash128 weights;      // of all bytes of the weights (common/model/weights_hash.h); zero: unknown
  // A hash of `boot` keyed with the setting hash_secret, which shows that both sides have the same
  // secret. Zero: no secret is set.
  Hash128 secret_probe;
  std::string kv_layout;        // KvLayout::ToString: equal layouts print equally
  std::string kv_address;       // host:port of the KvControl service, or empty (prefill)
  std::string admin_address;    // host:port of /metrics, for people
  std::string device;           // "cpu", "cuda:0"; for people
  std::string program_version;  // of the worker's program, "0.1.0"; for people
  std::string address;          // peer address of the stream; set by the router, not sent
  int32_t block_tokens = 0;
  // The largest window of layers where other layers read all tokens; else that of all tokens.
  KvWindow window = {};
  // The blocks of tokens that one sequence may have when it is alone: arena blocks in a model with
  // one cache group; more than those divided by the groups where windows release blocks.
  int32_t blocks = 0;
  int32_t max_sequences = 0;
  int32_t max_step_tokens = 0;
  int32_t context_length = 0;
  int32_t vocabulary = 0;
  // The bits of a result do not depend on other requests: always on CPUs, with engine.deterministic
  // on GPUs.
  bool deterministic = true;
  Duration itl_target{};  // EngineOptions::itl_target of a worker that decodes; 0: none

  bool operator==(const WorkerInfo&) const = default;
};

// The router's answer to a worker's Join.
struct Welcome {
  std::string router_id;
  uint64_t router_tag = 0;  // the upper 24 bits of the ids of all requests of this router
  Duration heartbeat{};     // the time between two heartbeats that the router asks for

  bool operator==(const Welcome&) const = default;
};

// The other worker of a hand-off.
struct Peer {
  WorkerId id;
  BootId boot;
  std::string kv_address;  // of its KvControl service; empty for a prefill worker, which dials

  bool operator==(const Peer&) const = default;
};

}  // namespace baton
