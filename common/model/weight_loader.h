#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "common/base/status.h"
#include "common/model/decoder_weights.h"
#include "common/model/model_spec.h"
#include "common/model/weight_source.h"
#include "common/model/weights_hash.h"
#include "kernels/ops.h"

namespace baton {

// The rows or columns of a whole weight, and the range of them that is loaded (none: all).
struct Extent {
  int64_t size = 0;
  std::optional<IndexRange> range = {};
};

// A weight to read from the source, and its rows (outputs).
struct WeightPart {
  WeightId id;
  Extent rows;
};

// Loads weights from a source into a backend. Without a backend, the same calls only check that the
// source has the weights, in types and shapes that can be loaded: they read no content and return
// null. All arguments of the constructors must outlive the loader. Used by one thread.
class WeightLoader {
 public:
  WeightLoader(const ModelSpec& spec, const WeightSource& source, const Bf16Layers& bf16)
      : spec_(spec), source_(source), bf16_(bf16) {}
  WeightLoader(const ModelSpec& spec,
               const WeightSource& source,
               const Bf16Layers& bf16,
               Ops& ops,
               WeightsHasher& hasher)
      : spec_(spec), source_(source), bf16_(bf16), ops_(&ops), hasher_(&hasher) {}

  size_t bytes() const { return bytes_; }
  // The weights that were asked for, in order.
  std::vector<WeightId> TakeIds() { return std::exchange(ids_, {}); }

  // Loads the parts as one matrix, concatenated along their rows.
  StatusOr<std::unique_ptr<Matrix>> LoadStacked(std::span<const WeightPart> parts,
                                                const Extent& cols);
  StatusOr<std::unique_ptr<Matrix>> LoadStacked(std::initializer_list<WeightPart> parts,
                                                const Extent& cols) {
    return LoadStacked(std::span(parts.begin(), parts.size()), cols);
  }
  StatusOr<std::unique_ptr<Matrix>> LoadGateUp(const WeightId& gate,
                                               const WeightId& up,
                                               const Extent& rows);
  // Loads the norm of the residual of this kind; `bias` is the kind of its bias.
  StatusOr<std::unique_ptr<Vector>> LoadNorm(WeightKind kind,
                                             WeightKind bias,
                                             int32_t layer = -1,
                                             float factor = 1);
  // Loads the parts as one vector, concatenated. All numbers are multiplied by `factor`.
  StatusOr<std::unique_ptr<Vector>> LoadVectors(std::initializer_list<WeightPart> parts,
                                                float factor = 1);
  // Reads a vector, which LoadVector loads. Without a backend it is only checked, and empty.
  StatusOr<std::vector<float>> ReadVector(const WeightPart& part);
  StatusOr<std::unique_ptr<Vector>> LoadVector(std::span<const float> values);
  // Loads the rotary embeddings.
  Status LoadRope(DecoderWeights& to);
  // Loads the scales of the layer's FP8 KV cache, which are computed from weights.
  StatusOr<std::unique_ptr<Vector>> LoadKvScales(int32_t layer,
                                                 float rope_magnitude,
                                                 const std::optional<IndexRange>& kv_heads);
  // Loads WeightKind::kLatentUp of these heads, or the two tensors in its place, as
  // LatentWeights::keys and values.
  Status LoadLatentHeads(int32_t layer, const IndexRange& heads, LatentWeights& to);

 private:
  Status LoadHead(const HostMatrix& keys, const HostMatrix& values, Ops& ops, LatentWeights& to);
  // LoadLatentHeads of WeightKind::kLatentKeys and kLatentValues.
  Status LoadTwoTensors(int32_t layer, const IndexRange& heads, LatentWeights& to);
  StatusOr<HostMatrix> GetMatrix(const WeightPart& part, const Extent& cols);
  StatusOr<std::unique_ptr<Matrix>> Count(StatusOr<std::unique_ptr<Matrix>> matrix) {
    if (matrix.ok()) bytes_ += (*matrix)->bytes();
    return matrix;
  }

  const ModelSpec& spec_;
  const WeightSource& source_;
  const Bf16Layers bf16_;
  Ops* const ops_ = nullptr;
  WeightsHasher* const hasher_ = nullptr;  // null without ops_
  size_t bytes_ = 0;
  std::vector<WeightId> ids_;
};

}  // namespace baton
