#include "common/model/dummy_weights.h"

#include <cmath>
#include <span>

#include "common/base/hash.h"
#include "common/model/weight_names.h"
#include "kernels/dequantize.h"

namespace baton {
namespace {

// SplitMix64 (Steele, Lea, Flood 2014), by counter.
float Uniform(uint64_t stream, uint64_t index) {
  uint64_t z = stream + (index + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  z ^= z >> 31;
  return static_cast<float>(static_cast<int32_t>(z >> 40) - (1 << 23)) / (1 << 23);
}

uint64_t StreamOf(const std::string& name, uint64_t seed) {
  return Xxh3(std::as_bytes(std::span(name)), seed);
}

bool IsNorm(WeightKind kind) {
  switch (kind) {
    case WeightKind::kOutputNorm:
    case WeightKind::kAttentionNorm:
    case WeightKind::kFeedForwardNorm:
    case WeightKind::kQueryNorm:
    case WeightKind::kKeyNorm:
      return true;
    default:
      return false;
  }
}

}  // namespace

StatusOr<HostMatrix> DummyWeights::GetMatrix(const WeightId& id, int64_t rows, int64_t cols) const {
  const std::string name = NameOf(id, NamingScheme::kHuggingFace).tensor;
  std::vector<uint16_t>& values = made_[name];
  const auto count = static_cast<size_t>(rows * cols);
  if (values.size() != count) {
    values.resize(count);
    const uint64_t stream = StreamOf(name, seed_);
    const float scale = std::sqrt(3.0f / static_cast<float>(cols));
    for (size_t i = 0; i < count; ++i) values[i] = FloatToBrain(scale * Uniform(stream, i));
  }
  return HostMatrix{DType::kBF16, rows, cols, reinterpret_cast<const std::byte*>(values.data())};
}

StatusOr<std::vector<float>> DummyWeights::GetVector(const WeightId& id, int64_t size) const {
  std::vector<float> values(static_cast<size_t>(size), 1.0f);
  if (id.kind == WeightKind::kRopeFactors) return values;
  const uint64_t stream = StreamOf(NameOf(id, NamingScheme::kHuggingFace).tensor, seed_);
  const float middle = IsNorm(id.kind) ? 1.0f : 0.0f;
  for (size_t i = 0; i < values.size(); ++i) values[i] = middle + 0.1f * Uniform(stream, i);
  return values;
}

void DummyWeights::Release(const WeightId& id) const {
  made_.erase(NameOf(id, NamingScheme::kHuggingFace).tensor);
}

Hash128 DummyWeights::Identity() const {
  const std::string text = fmt::format("dummy weights {}", seed_);
  return Xxh3Wide(std::as_bytes(std::span(text)));
}

}  // namespace baton
