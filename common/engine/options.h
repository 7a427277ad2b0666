#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>

#include "common/base/clock.h"
#include "kernels/dtype.h"

namespace baton {

enum class SchedulingPolicy { kFcfs, kPriority, kShortestPrefill, kDeadline };
enum class AdmissionPolicy {
  kMaxUtilization,     // admit when the prompt fits; preempt when blocks run out; an answer ends
                       // where the arena does
  kGuaranteedNoEvict,  // admit when prompt + max_tokens fit: a running sequence is never preempted
};

struct EngineOptions {
  int32_t max_step_tokens = 512;  // token budget of one step
  int32_t max_sequences = 256;    // in one step
  // A step with so many prompt tokens takes in no further prompt: it would take longer in
  // proportion, and the prompts that are in it would wait for the newcomer. By default the token
  // budget alone counts: beside sequences that decode, fewer and larger steps cost less in all.
  int32_t full_step_tokens = std::numeric_limits<int32_t>::max();
  // For a device on which a row's bits depend on whether it is computed alone or in a chunk, but on
  // nothing else (a deterministic GPU): output tokens that must be computed again are computed one
  // by one, as they were at first, and no chunk leaves a single token of a prompt.
  bool repeat_output_singly = false;
  // The time between two tokens that prompts should leave to those who generate (ITL): beside them
  // a step takes no more prompt tokens than fit into it, by the step times measured so far, though
  // always some. Zero: the token budget alone counts.
  Duration itl_target{};
  int32_t max_waiting = 4096;  // sequences; more requests are refused with ResourceExhausted
  // kDecode requests that may wait for blocks; more are refused at once with ResourceExhausted, so
  // that the router can ask another worker.
  int32_t max_waiting_reservations = 64;
  // How long a kDecode request may wait for blocks before it is refused likewise. Bounds what no
  // single worker can see: prefill workers whose blocks wait for us while ours wait for them.
  Duration max_reservation_wait = std::chrono::seconds(2);
  int32_t kv_blocks = 0;                     // arena size in blocks; 0: from kv_memory_bytes
  size_t kv_memory_bytes = size_t{1} << 30;  // 0: from kv_memory_fraction
  // Of the memory that the device has left beside the model and what its steps need.
  double kv_memory_fraction = 0.9;
  int32_t block_tokens = 16;
  DType kv_dtype = DType::kF16;
  SchedulingPolicy policy = SchedulingPolicy::kFcfs;
  AdmissionPolicy admission = AdmissionPolicy::kMaxUtilization;
  bool prefix_cache = true;
  // Of the cluster; seeds block hashes together with the model fingerprint.
  uint64_t hash_secret = 0;
};

}  // namespace baton
