#pragma once

#include <cstdint>
#include <functional>
#include <utility>

#include "kernels/cuda/latent/latent_ops.h"
#include "kernels/kv_view.h"
#include "kernels/latent_ops.h"

namespace baton::cuda {

// Adds the ops of LatentOps to the step's list of ops, all but those of sparse attention
// (OpVariant::kSparseAttention), which models may not need (CHECK). Owned by CudaOps; one thread.
class ListedLatentOps final : public LatentOps {
 public:
  // The step whose ops are being listed.
  struct Step {
    // Pads the rows of a tensor as for the step's other ops.
    std::function<Tensor(const Tensor&)> pad;
    // The angles of the step's rows, `rows` with padding; lists the op that computes them.
    std::function<const float2*(const Vector& inverse_frequencies, float magnitude, int64_t rows)>
        angles;
    // Where the KV of a layer is.
    std::function<KvLayerPlace(int32_t layer)> place;
    // Whether all rows are logit rows.
    std::function<bool()> recorded;
    // Appends an op to the list.
    std::function<void(const LatentOp&)> add;
  };

  explicit ListedLatentOps(Step step) : step_(std::move(step)) {}

  void WriteLatent(const Tensor& kv, const LatentKvArgs& args) override;
  void AbsorbQueries(const Tensor& q, const LatentQueryArgs& args, const Tensor& out) override;
  void AttendLatents(const Tensor& q, const LatentAttentionArgs& args, const Tensor& out) override;
  void WriteIndexKeys(const Tensor& k, const IndexKeyArgs& args) override;
  void SelectTokens(const Tensor& q,
                    const Tensor& weights,
                    const SelectArgs& args,
                    const Tensor& out) override;
  void AttendSelected(const Tensor& q,
                      const Tensor& selected,
                      const LatentAttentionArgs& args,
                      const Tensor& out) override;
  void ExpandValues(const Tensor& x, const LatentValueArgs& args, const Tensor& out) override;

 private:
  LatentAngles AnglesOf(const LatentRope& rope, int64_t rows) const;

  const Step step_;
};

}  // namespace baton::cuda
