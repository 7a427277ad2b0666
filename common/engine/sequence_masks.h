#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "common/base/clock.h"
#include "common/base/work_threads.h"
#include "common/engine/sequence.h"
#include "common/engine/sequence_mask.h"
#include "common/engine/step_plan.h"
#include "common/grammar/grammar.h"

namespace baton {

// Computes the masks of constrained sequences on threads of its own, while steps run. A mask is a
// function of the output tokens, so preemption, hand-off and resume need no state of it. A grammar
// whose calls take long has its masks computed on a thread apart from the others, so that only
// sequences of such grammars wait for each other. Belongs to the engine's thread, except First. The
// destructor computes the masks that have begun, because a device may wait for them.
class SequenceMasks final {
 public:
  // A grammar with a recent call that took longer than this has its masks computed apart.
  static constexpr Duration kLongCall = std::chrono::milliseconds(5);

  SequenceMasks(int32_t vocabulary, int threads)
      : vocabulary_(vocabulary), threads_("mask", threads), slow_thread_("mask-slow", 1) {}

  // Computes the mask of the first token that a request chooses, after `output`, which an earlier
  // epoch generated. Calls `done` with it on one of the threads. Thread-safe.
  void First(const std::shared_ptr<const Grammar>& grammar,
             std::span<const TokenId> stop_tokens,
             std::vector<TokenId> output,
             std::function<void(std::shared_ptr<SequenceMask>)> done);
  // Begins the mask of the next token of `sequence`, unless that has begun, and those of the tokens
  // after its drafts. No effect on a sequence without a grammar. All its output tokens must be
  // known.
  void Begin(Sequence& sequence);
  // The same for all rows of `plan` that choose a token and whose sequences have not ended.
  void BeginAll(const StepPlan& plan);

 private:
  WorkThreads& ThreadFor(bool slow) { return slow ? slow_thread_ : threads_; }

  const int32_t vocabulary_;
  WorkThreads threads_;
  WorkThreads slow_thread_;
};

}  // namespace baton
