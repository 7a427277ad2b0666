#pragma once

#include <cstdint>
#include <string>

#include "common/base/hash.h"
#include "common/base/status.h"
#include "common/kvcache/kv_window.h"
#include "router/types.h"

namespace baton::router {

// The cluster's model, from the router's own model files. A zero hash is unknown and not compared.
struct OwnModel {
  std::string name;
  int32_t vocabulary = 0;
  Hash128 shape;
  Hash128 tokenizer;
  Hash128 fingerprint;
};

// The properties that all workers of a cluster share. The model name is the router's, if it has
// one; the other values come from the first worker that joined.
struct ClusterIdentity {
  std::string model;
  Hash128 fingerprint;
  std::string kv_layout;
  int32_t block_tokens = 0;
  KvWindow window = {};  // WorkerInfo::window; follows from the layout
  int32_t context_length = 0;
  int32_t vocabulary = 0;
  Hash128 weights;  // zero: not known
};

// FailedPrecondition, printing both sides, when the worker's model is not `own`. The tokenizer is
// not compared when the worker does not know its own.
Status CheckModel(const WorkerInfo& worker, const OwnModel& own);

// FailedPrecondition when the worker's hash_secret is not `secret`. Neither secret is printed.
Status CheckSecret(const WorkerInfo& worker, uint64_t secret);

// FailedPrecondition, printing both sides, when the worker does not match `cluster` in fingerprint,
// hash of the weights, KV layout, block size or context length.
Status CheckFit(const WorkerInfo& worker, const ClusterIdentity& cluster);

}  // namespace baton::router
