#include "common/model/count_parameters.h"

#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "common/base/check.h"
#include "common/model/decoder_weights.h"
#include "common/model/weight_source.h"

namespace baton {
namespace {

// Counts the weights that a decoder asks for.
class WeightCounter final : public WeightSource {
 public:
  int64_t total() const {
    int64_t total = 0;
    for (const auto& [key, count] : counts_) total += count;
    return total;
  }

  StatusOr<HostMatrix> GetMatrix(const WeightId&,
                                 int64_t,
                                 int64_t,
                                 const MatrixSlice&) const override {
    BATON_CHECK(false, "weights that are only counted are read");
  }
  Status CheckMatrix(const WeightId& id,
                     int64_t rows,
                     int64_t cols,
                     const MatrixSlice&) const override {
    Count(id, rows * cols);
    return OkStatus();
  }
  StatusOr<std::vector<float>> GetVector(const WeightId&,
                                         int64_t size,
                                         const std::optional<IndexRange>&) const override {
    return std::vector<float>(static_cast<size_t>(size), 1.0f);
  }
  Status CheckVector(const WeightId& id, int64_t size) const override {
    Count(id, size);
    return OkStatus();
  }
  void Release(const WeightId&) const override {}
  Hash128 HashPieces(const WeightId&, const PieceShare&) const override { return {}; }
  Hash128 Identity() const override { return {}; }
  std::vector<TensorInfo> Tensors() const override { return {}; }

 private:
  using Key = std::tuple<WeightKind, int32_t, int32_t>;  // WeightId

  // A weight may be asked for twice.
  void Count(const WeightId& id, int64_t count) const {
    counts_[{id.kind, id.layer, id.expert}] = count;
  }

  mutable std::map<Key, int64_t> counts_;
};

}  // namespace

int64_t CountParameters(const ModelSpec& spec) {
  const WeightCounter counter;
  const Status counted = CheckAllWeights(spec, counter);
  BATON_CHECK(counted.ok(), "{}", Message(counted));
  return counter.total();
}

}  // namespace baton
