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
                       // when it fills the whole arena
  kGuaranteedNoEvict,  // admit when prompt + max_tokens fit: a running sequence is never preempted
};

// The KV arena, which the executor allocates.
struct KvOptions {
  int32_t blocks = 0;                     // size in blocks; 0: from memory_bytes
  size_t memory_bytes = size_t{1} << 30;  // 0: from memory_fraction
  // The share of the device memory that is free after the model and the memory for its steps are
  // allocated.
  double memory_fraction = 0.9;
  int32_t block_tokens = 16;
  DType dtype = DType::kF16;
};

inline constexpr int32_t kMaxLookupDrafts = 64;

struct EngineOptions {
  int32_t max_step_tokens = 512;  // token budget of one step
  int32_t max_sequences = 256;    // most running sequences, and most sequences in one step
  // A step that has this many prompt tokens takes no further prompt, because the step would take
  // proportionally longer and its prompts would wait for the new one. By default only the token
  // budget applies: for decoding sequences, fewer and larger steps cost less in total.
  int32_t full_step_tokens = std::numeric_limits<int32_t>::max();
  // For a device on which a row's bits depend only on whether the row is computed alone or in a
  // chunk (a deterministic GPU). Output tokens that must be recomputed are then computed as they
  // were at first: many in a step, but each as the only row of a sequence. And no chunk leaves a
  // single prompt token for the next chunk.
  bool repeat_output_singly = false;
  // Target inter-token latency (ITL). A step that also decodes takes only as many prompt tokens as
  // fit into it by the step times measured so far, but the first prompt always gets at least one
  // block of tokens, within the token budget. Zero: only the token budget applies.
  Duration itl_target{};
  int32_t max_waiting = 4096;  // sequences; more requests are refused with ResourceExhausted
  // kDecode requests that may wait for blocks. More are refused at once with ResourceExhausted, so
  // that the router can choose another worker.
  int32_t max_waiting_reservations = 64;
  // How long a kDecode request may wait for blocks before it is refused with ResourceExhausted, so
  // that the router can try another worker. A request that is older may wait for as long as it is
  // old.
  Duration max_reservation_wait = std::chrono::seconds(2);
  SchedulingPolicy policy = SchedulingPolicy::kFcfs;
  AdmissionPolicy admission = AdmissionPolicy::kMaxUtilization;
  bool prefix_cache = true;
  // For models whose layers have states: the prefix cache keeps a sequence's state after this many
  // tokens each (a checkpoint), and that near the end of its prompt. 0: as many tokens as have KV
  // of the size of a state, at most 2,048.
  int32_t state_checkpoint_tokens = 0;
  // The most tokens that a step verifies of each decoding sequence behind its next one: they are
  // guesses from the tokens before (LookupDrafter). 0: none.
  int32_t lookup_drafts = 0;
  // Threads that compute the masks of constrained sequences while steps run.
  int mask_threads = 2;
  // The cluster's secret. Block hashes are seeded with it and with the model fingerprint.
  uint64_t hash_secret = 0;
};

}  // namespace baton
