#pragma once

#include <cstdint>
#include <functional>
#include <utility>

#include "kernels/cuda/recurrent/recurrent_ops.h"
#include "kernels/kv_view.h"
#include "kernels/recurrent_ops.h"

namespace baton::cuda {

// Adds the ops of RecurrentOps to the step's list of ops. Owned by CudaOps; one thread.
class ListedRecurrentOps final : public RecurrentOps {
 public:
  struct ChunkPlan {
    int64_t chunks = 0;
    bool all_rows = false;
  };
  // The step whose ops are being listed.
  struct Step {
    // Pads the rows of a tensor as for the step's other ops.
    std::function<Tensor(const Tensor&)> pad;
    // Memory that only ops of the step use.
    std::function<std::byte*(int64_t bytes)> scratch;
    // Where the state of a layer is, after a check that states have the bytes of `shape`.
    std::function<int32_t(int32_t layer, const RecurrentShape& shape)> place;
    // Whether there are kernels for a shape; if not, the step fails.
    std::function<bool(const RecurrentShape& shape)> accepts;
    // Whether the step has one row of each sequence, and a kernel for all of such a layer.
    std::function<bool(const RecurrentShape& shape)> decodes;
    // Those chunks of the step's sequences that are computed by chunked kernels, and whether
    // they have all rows.
    std::function<ChunkPlan(const RecurrentShape& shape)> chunks;
    // Appends an op to the list.
    std::function<void(const RecurrentOp&)> add;
  };

  explicit ListedRecurrentOps(Step step) : step_(std::move(step)) {}

  void RunRecurrent(const Tensor& x,
                    const Tensor& gates,
                    const RecurrentArgs& args,
                    const Tensor& out) override;
  void Convolve(const Tensor& x, const RecurrentArgs& args, const Tensor& out) override;
  void Scan(const Tensor& v,
            const Tensor& gates,
            const Tensor& k,
            const Tensor& q,
            const RecurrentArgs& args,
            const Tensor& out) override;

 private:
  RecurrentLayer LayerOf(const RecurrentArgs& args) const;
  // Lists the ops that walk the rows of all sequences, or of those without chunks.
  void WalkRows(const Tensor& x,
                const Tensor& gates,
                const RecurrentLayer& layer,
                const Tensor& out,
                bool without_chunks) const;
  // Scratch memory for `cols` float32 elements of each of `rows` rows.
  Tensor Floats(int64_t rows, int64_t cols) const;

  const Step step_;
};

}  // namespace baton::cuda
