#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/base/hash.h"
#include "common/base/status.h"
#include "kernels/tensor.h"

namespace baton {

// What a weight is for, whatever a file calls it. Matrices are [outputs][inputs].
enum class WeightKind : uint8_t {
  kEmbedding,    // [vocab][hidden]
  kOutputNorm,   // [hidden]
  kHead,         // [vocab][hidden]
  kRopeFactors,  // [rotary_dim / 2]: divide the rope frequencies
  // One a layer:
  kAttentionNorm,
  kQuery,
  kKey,
  kValue,
  kAttentionOutput,
  kQueryBias,
  kKeyBias,
  kValueBias,
  kAttentionOutputBias,
  kQueryNorm,
  kKeyNorm,
  kFeedForwardNorm,
  kGate,
  kUp,
  kDown,
  kGateBias,
  kUpBias,
  kDownBias,
  kRouter,  // [experts][hidden]
  // One a layer and expert:
  kExpertGate,
  kExpertUp,
  kExpertDown,
};

struct WeightId {
  WeightKind kind = WeightKind::kEmbedding;
  int32_t layer = -1;
  int32_t expert = -1;
};

// A tensor as a file holds it, for people.
struct TensorInfo {
  std::string name;
  std::string type;            // "q4_1"
  std::vector<int64_t> shape;  // outermost first: a matrix is {rows, cols}
  size_t bytes = 0;
  std::string file;
};

// Where weights come from: files or a generator. One thread at a time.
class WeightSource {
 public:
  virtual ~WeightSource() = default;

  // A matrix of exactly that shape, which a generator gives without data (HostMatrix); the view
  // stays valid until Release(id) or the source's end. Errors: NotFound naming file and tensor,
  // InvalidArgument naming expected and found shapes.
  virtual StatusOr<HostMatrix> GetMatrix(const WeightId& id, int64_t rows, int64_t cols) const = 0;
  // A vector of exactly that size, as float32. Errors as GetMatrix.
  virtual StatusOr<std::vector<float>> GetVector(const WeightId& id, int64_t size) const = 0;
  // The weight was consumed: its memory (file pages, generated numbers) may go. Asking again works.
  virtual void Release(const WeightId& id) const = 0;

  // A hash that two sources share when they hold the same weights (what is hashed: fingerprint.h).
  virtual Hash128 Identity() const = 0;
  // All tensors there are, in file order; empty for a generator.
  virtual std::vector<TensorInfo> Tensors() const = 0;
  // The names of the tensors that nobody has asked for yet, in file order.
  virtual std::vector<std::string> Unread() const { return {}; }
};

}  // namespace baton
