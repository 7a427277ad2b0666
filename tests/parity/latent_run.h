#pragma once

#include <cstdint>
#include <vector>

#include "kernels/ops.h"
#include "tests/parity/host_weights.h"

namespace baton::parity {

// More heads than a task computes, and sizes that are no multiples of a vector.
inline constexpr LatentShape kOddLatents = {
    .heads = 11, .rank = 40, .nope_dim = 20, .rope_dim = 8, .value_dim = 12};

// Random inputs and weights of multi-head latent attention of one layer: sequences of several
// lengths, computed in two steps of several rows each.
class LatentRun final {
 public:
  LatentRun(Ops& ops, DType kv_dtype, const LatentShape& shape = kOddLatents);

  // What the backend computes: of the rows of each sequence in turn.
  std::vector<float> Compute() const;
  // The same in double precision, by the formula: keys and values of each head are products of
  // weights and latents.
  std::vector<double> Expected() const;

 private:
  struct Row {
    std::vector<float> q;   // [heads · query_dim]
    std::vector<float> kv;  // [width]
  };

  // So that scores of long latents do not leave one position alone.
  float scale() const { return shape_.rank > 64 ? 0.05f : 0.2f; }
  std::vector<double> StoredLatent(const Row& row, int32_t position) const;
  std::vector<double> AttendHead(const std::vector<std::vector<double>>& latents,
                                 const Row& row,
                                 int32_t position,
                                 int32_t head) const;

  Ops& ops_;
  const DType dtype_;
  const LatentShape shape_;
  const std::vector<float> frequencies_;
  const std::vector<float> norm_;
  HostWeights keys_;    // by head: [nope_dim][rank]
  HostWeights values_;  // by head: [value_dim][rank]
  std::vector<std::vector<Row>> sequences_;
};

}  // namespace baton::parity
