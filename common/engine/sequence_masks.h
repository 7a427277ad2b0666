#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/base/work_threads.h"
#include "common/engine/sequence.h"
#include "common/engine/step_plan.h"
#include "common/grammar/grammar.h"
#include "kernels/token_mask.h"

namespace baton {

// The grammar's state of one sequence, and the mask of its next token. The threads of SequenceMasks
// use the matcher and write the mask; the engine's thread has the rest.
struct SequenceMask {
  SequenceMask(int32_t vocabulary, std::unique_ptr<GrammarMatcher> grammar_matcher)
      : mask(vocabulary), matcher(std::move(grammar_matcher)) {}

  TokenMask mask;
  std::unique_ptr<GrammarMatcher> matcher;
  size_t given = 0;    // output tokens that the matcher has, or will have when the mask is computed
  bool begun = false;  // `mask` is, or will be, that of the token after these
  Status failure;      // why `mask` allows no token; to be read when the mask is computed
};

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
  // Begins the mask of the next token of `sequence`, unless that has begun. No effect on a sequence
  // without a grammar. All its output tokens must be known.
  void Begin(Sequence& sequence);
  // The same for all rows of `plan` that choose a token and whose sequences have not ended.
  void BeginAll(const StepPlan& plan);

 private:
  const int32_t vocabulary_;
  WorkThreads threads_;
  WorkThreads slow_thread_;
};

}  // namespace baton
