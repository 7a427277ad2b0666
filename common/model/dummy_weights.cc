#include "common/model/dummy_weights.h"

#include <cmath>
#include <span>

#include "common/base/hash.h"
#include "common/model/weight_names.h"
#include "common/model/weights_hash.h"
#include "kernels/uniform_weight.h"

namespace baton {
namespace {

uint64_t StreamOf(const std::string& name, uint64_t seed) {
  return Xxh3(std::as_bytes(std::span(name)), seed);
}

bool IsNorm(WeightKind kind) {
  switch (kind) {
    case WeightKind::kOutputNorm:
    case WeightKind::kAttentionNorm:
    case WeightKind::kFeedForwardNorm:
    case WeightKind::kAttentionPostNorm:
    case WeightKind::kFeedForwardPostNorm:
    case WeightKind::kQueryNorm:
    case WeightKind::kKeyNorm:
    case WeightKind::kQueryDownNorm:
    case WeightKind::kLatentNorm:
    case WeightKind::kIndexKeyNorm:
    case WeightKind::kRecurrentNorm:
    case WeightKind::kRecurrentTimeNorm:
    case WeightKind::kRecurrentKeyNorm:
    case WeightKind::kRecurrentQueryNorm:
      return true;
    default:
      return false;
  }
}

}  // namespace

DummyWeights::DummyWeights(uint64_t seed, const QuantizationConfig& config) : seed_(seed) {
  if (!config.schemes.empty()) groups_ = std::make_unique<DummyGroups>(config, seed);
}

StatusOr<HostMatrix> DummyWeights::GetMatrix(const WeightId& id,
                                             int64_t rows,
                                             int64_t cols,
                                             const MatrixSlice& slice) const {
  const std::string name = NameOf(id, NamingScheme::kHuggingFace).tensor;
  if (groups_ != nullptr && groups_->Quantizes(id.kind)) {
    return SliceOf(groups_->Matrix(rows, cols), slice, name);
  }
  const HostMatrix whole{.dtype = DType::kBF16,
                         .rows = rows,
                         .cols = cols,
                         .stream = StreamOf(name, seed_),
                         .scale = std::sqrt(3.0f / static_cast<float>(cols))};
  return SliceOf(whole, slice, name);
}

StatusOr<std::vector<float>> DummyWeights::GetVector(const WeightId& id,
                                                     int64_t size,
                                                     const std::optional<IndexRange>& range) const {
  const std::string name = NameOf(id, NamingScheme::kHuggingFace).tensor;
  BATON_ASSIGN_OR_RETURN(const IndexRange wanted, ResolveRange(range, size, name, "elements"));
  std::vector<float> values(static_cast<size_t>(wanted.size()), 1.0f);
  if (id.kind == WeightKind::kRopeFactors) return values;
  const uint64_t stream = StreamOf(name, seed_);
  const float middle = IsNorm(id.kind) ? 1.0f : 0.0f;
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = middle + 0.1f * UniformWeight(stream, static_cast<uint64_t>(wanted.begin) + i);
  }
  return values;
}

Hash128 DummyWeights::HashPieces(const WeightId& id, const PieceShare& share) const {
  const std::string name = NameOf(id, NamingScheme::kHuggingFace).tensor;
  return HashOfPieces(name, std::as_bytes(std::span(&seed_, 1)), share);
}

Hash128 DummyWeights::Identity() const {
  const std::string text = fmt::format("dummy weights {}", seed_);
  return Xxh3Wide(std::as_bytes(std::span(text)));
}

}  // namespace baton
