#pragma once

#include <memory>
#include <vector>

#include "tests/unit/model/ranked_runner.h"

namespace baton {

// Whether both have the same bits.
bool SameBits(const std::vector<Logits>& a, const std::vector<Logits>& b);

// One rank and a group of ranks with the same model, which compute the same steps.
class RankComparison final {
 public:
  RankComparison(const ModelSpec& spec,
                 const WeightSource& weights,
                 const Degrees& degrees,
                 const RunnerOptions& options = {});

  // Expects equal bits of the logits, and of the KV of all ranks after the step.
  void Step(std::span<const Chunk> chunks);
  // Three sequences of up to `longest` tokens: prompts in chunks, beside decoding sequences, with
  // logits of all, of the last and of no rows. `longest` is at least 40.
  void RunMixedBatches(int32_t longest);
  void CompareKv();
  // The same of the states of these sequences.
  void CompareStates(std::span<const Chunk> chunks);

  StepRunner& alone() { return *alone_; }
  RankedRunner& group() { return *group_; }

 private:
  int32_t vocab_;
  std::unique_ptr<StepRunner> alone_;
  std::unique_ptr<RankedRunner> group_;
};

// `length` tokens that depend on `first`.
std::vector<TokenId> MakePrompt(int32_t length, TokenId first, int32_t vocab);

}  // namespace baton
