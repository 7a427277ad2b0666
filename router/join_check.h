#pragma once

#include <cstdint>
#include <string>

#include "common/base/hash.h"
#include "common/base/status.h"
#include "router/types.h"

namespace baton::router {

// The cluster's model as the router's own files say; a hash of zero: not known to it.
struct OwnModel {
  std::string name;
  int32_t vocabulary = 0;
  Hash128 shape;
  Hash128 tokenizer;
  Hash128 fingerprint;
};

// What the workers of a cluster have in common: the model is the router's, the rest those workers
// say that have joined.
struct ClusterIdentity {
  std::string model;
  Hash128 fingerprint;
  std::string kv_layout;
  int32_t block_tokens = 0;
  int32_t context_length = 0;
  int32_t vocabulary = 0;
};

// FailedPrecondition, printing both sides, when the worker's model is not `own`. A worker need not
// know its tokenizer.
Status CheckModel(const WorkerInfo& worker, const OwnModel& own);

// FailedPrecondition when the worker's hash_secret is not `secret`; neither is printed.
Status CheckSecret(const WorkerInfo& worker, uint64_t secret);

// FailedPrecondition, printing both sides, when the worker does not fit those that have joined.
Status CheckFit(const WorkerInfo& worker, const ClusterIdentity& cluster);

}  // namespace baton::router
