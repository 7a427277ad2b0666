#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "common/model/dummy_groups.h"
#include "common/model/quantization_config.h"
#include "common/model/weight_source.h"

namespace baton {

// Random weights of any shape, for tests and for benchmarks without a checkpoint. A weight is a
// function of (seed, its Hugging Face name, its shape). With u uniform in [-1, 1):
//   matrices √(3 / cols) · u in bf16 (a GEMM keeps the scale of its input), norms 1 + u/10,
//   biases u/10. Rope factors are 1.
// A slice has the numbers of the whole weight. Matrices are returned without data: the backend
// generates their values (HostMatrix). Those that a quantization_config names have data
// (DummyGroups).
class DummyWeights final : public WeightSource {
 public:
  explicit DummyWeights(uint64_t seed, const QuantizationConfig& config = {});

  StatusOr<HostMatrix> GetMatrix(const WeightId& id,
                                 int64_t rows,
                                 int64_t cols,
                                 const MatrixSlice& slice) const override;
  StatusOr<std::vector<float>> GetVector(const WeightId& id,
                                         int64_t size,
                                         const std::optional<IndexRange>& range) const override;
  void Release(const WeightId&) const override {}
  // One piece, whose hash is that of seed and name.
  Hash128 HashPieces(const WeightId& id, const PieceShare& share) const override;
  Hash128 Identity() const override;
  std::vector<TensorInfo> Tensors() const override { return {}; }

 private:
  uint64_t seed_;
  std::unique_ptr<const DummyGroups> groups_;  // null: no weights are quantised
};

}  // namespace baton
