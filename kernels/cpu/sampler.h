#pragma once

#include <span>
#include <vector>

#include "kernels/cpu/kernel_table.h"
#include "kernels/sampling.h"

namespace baton::cpu {

// Samples tokens, one row at a time, as specified in kernels/sampling.h. Has scratch memory;
// belongs to one thread. NaN logits count as −∞. With top-k or top-p the draw visits the candidates
// from the most probable down (ties by id), otherwise in order of ids.
class Sampler final {
 public:
  explicit Sampler(const KernelTable& kernels) : kernels_(&kernels) {}

  // Chooses one token. Overwrites `logits`. The row's mask must be computed. The token is kNoToken
  // when all logits are NaN or −∞.
  void Choose(std::span<float> logits, const SamplingRow& row, SampledToken& out);

 private:
  struct Candidate {
    float value;
    TokenId token;
  };

  void Logprobs(std::span<const float> logits, int32_t top, SampledToken& out);
  void ApplyBias(std::span<float> logits, const SamplingRow& row);
  static void ApplyMask(std::span<float> logits, std::span<const uint32_t> allowed);
  void ApplyPenalties(std::span<float> logits, const SamplingRow& row);
  TokenId Draw(std::span<float> logits, float maximum, const SamplingRow& row);
  TokenId DrawInOrder(std::span<const float> weights, float least, double draw);
  TokenId DrawFromBest(std::span<const float> weights,
                       double sum,
                       const SamplingRow& row,
                       double draw);
  // Fills candidates_ with the `count` highest of `values`, or with at least those that together
  // reach `mass` if these are fewer; highest first, ties by id.
  void Best(std::span<const float> values, size_t count, double mass);

  const KernelTable* kernels_;
  std::vector<float> copy_;
  std::vector<int32_t> counts_;
  std::vector<Candidate> candidates_;
  std::vector<uint32_t> bucket_counts_;
  std::vector<double> bucket_mass_;
};

}  // namespace baton::cpu
