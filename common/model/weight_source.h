#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/hash.h"
#include "common/base/status.h"
#include "common/model/weight_kind.h"
#include "common/model/weight_slice.h"
#include "kernels/tensor.h"

namespace baton {

struct WeightId {
  WeightKind kind = WeightKind::kEmbedding;
  int32_t layer = -1;
  int32_t expert = -1;

  bool operator==(const WeightId&) const = default;
};

// A description of a tensor in a file, for display.
struct TensorInfo {
  std::string name;
  std::string type;            // for example "q4_1"
  std::vector<int64_t> shape;  // outermost first: a matrix is {rows, cols}
  size_t bytes = 0;
  std::string file;
};

// The source of the weights: files or a generator. One thread at a time, except for HashPieces.
class WeightSource {
 public:
  virtual ~WeightSource() = default;

  // Returns a part of a matrix that has exactly this shape as a whole; a generator returns it
  // without data (HostMatrix). The part is a view, so that only the bytes that the caller reads are
  // read from a file. The view is valid until Release(id) or the destruction of the source. Errors:
  // NotFound naming file and tensor; InvalidArgument naming expected and found shapes, or the range
  // that cannot be cut (SliceOf).
  virtual StatusOr<HostMatrix> GetMatrix(const WeightId& id,
                                         int64_t rows,
                                         int64_t cols,
                                         const MatrixSlice& slice = {}) const = 0;
  // The error of GetMatrix, if any. Reads no content.
  virtual Status CheckMatrix(const WeightId& id,
                             int64_t rows,
                             int64_t cols,
                             const MatrixSlice& slice) const {
    return GetMatrix(id, rows, cols, slice).status();
  }
  // Returns a range (without one: all) of a vector of exactly this size, as float32. Errors as
  // GetMatrix; a range may begin and end anywhere.
  virtual StatusOr<std::vector<float>> GetVector(
      const WeightId& id, int64_t size, const std::optional<IndexRange>& range = {}) const = 0;
  // OK when GetVector would return the whole vector. Reads no content.
  virtual Status CheckVector(const WeightId& /*id*/, int64_t /*size*/) const { return OkStatus(); }
  // The caller has consumed the weight, so its memory (file pages) may be freed. The weight can be
  // read again later.
  virtual void Release(const WeightId& id) const = 0;

  // Whether the source has both weights and they differ in type, shape or content. Reads both.
  virtual bool HasDifferent(const WeightId& /*a*/, const WeightId& /*b*/) const { return false; }

  // The sum of the hashes of all bytes of the weight that are in `share` (weights_hash.h), and zero
  // when there is no such weight. The sum over all parts is the same for every number of parts.
  // Other threads may call it beside all other methods.
  virtual Hash128 HashPieces(const WeightId& id, const PieceShare& share) const = 0;

  // A hash of the weights. It is equal for two sources with the same weights (see fingerprint.h).
  virtual Hash128 Identity() const = 0;
  // All tensors, in file order; empty for a generator.
  virtual std::vector<TensorInfo> Tensors() const = 0;
  // The names of the tensors that nobody has asked for yet, in file order.
  virtual std::vector<std::string> Unread() const { return {}; }
};

}  // namespace baton
