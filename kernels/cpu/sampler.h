#pragma once

#include <span>
#include <vector>

#include "kernels/cpu/kernel_table.h"
#include "kernels/sampling.h"

namespace baton::cpu {

// Chooses tokens, one row at a time, as kernels/sampling.h says. Holds scratch; one thread.
// NaN logits count as −∞. With top-k or top-p the draw walks the candidates from the most probable
// down (ties by id), otherwise in order of ids.
class Sampler final {
 public:
  explicit Sampler(const KernelTable& kernels) : kernels_(&kernels) {}

  // Overwrites `logits`. kNoToken when no token has a probability.
  void Choose(std::span<float> logits, const SamplingRow& row, SampledToken& out);

 private:
  struct Candidate {
    float value;
    TokenId token;
  };

  void Logprobs(std::span<const float> logits, int32_t top, SampledToken& out);
  void ApplyBias(std::span<float> logits, const SamplingRow& row);
  void ApplyPenalties(std::span<float> logits, const SamplingRow& row);
  TokenId Draw(std::span<float> logits, float maximum, const SamplingRow& row);
  TokenId DrawInOrder(std::span<const float> weights, float least, double draw);
  TokenId DrawFromBest(std::span<const float> weights,
                       double sum,
                       const SamplingRow& row,
                       double draw);
  // Fills candidates_ with the `count` highest of `values` (or those that together reach `mass`,
  // whichever are fewer), highest first, ties by id.
  void Best(std::span<const float> values, size_t count, double mass);

  const KernelTable* kernels_;
  std::vector<float> copy_;
  std::vector<int32_t> counts_;
  std::vector<Candidate> candidates_;
  std::vector<uint32_t> bucket_counts_;
  std::vector<double> bucket_mass_;
};

}  // namespace baton::cpu
