#pragma once

#include <cstdint>
#include <vector>

#include "kernels/cpu/cpu_exchange.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/rope_table.h"
#include "kernels/kv_view.h"
#include "kernels/latent_ops.h"
#include "kernels/step_input.h"
#include "kernels/thread_pool.h"

namespace baton::cpu {

// What latent attention uses of the CpuOps that owns it: all of it lives as long.
struct LatentContext {
  const KernelTable& kernels;
  ThreadPool& pool;
  const CpuExchange& exchange;
  // The current step.
  const StepInput& input;
  const KvView& kv;
  const std::vector<int32_t>& row_sequence;
  const int64_t& longest;
  RopeTables& rope;
  std::vector<std::vector<float>>& scratch;  // per thread
};

// Multi-head latent attention on the thread pool of CpuOps. One thread at a time; bad arguments are
// bugs of the caller (CHECK).
class CpuLatentOps final : public LatentOps {
 public:
  explicit CpuLatentOps(const LatentContext& context) : context_(context) {}

  void WriteLatent(const Tensor& kv, const LatentKvArgs& args) override;
  void AbsorbQueries(const Tensor& q, const LatentQueryArgs& args, const Tensor& out) override;
  void AttendLatents(const Tensor& q, const LatentAttentionArgs& args, const Tensor& out) override;
  void ExpandValues(const Tensor& x, const LatentValueArgs& args, const Tensor& out) override;

 private:
  // Columns of each head in turn: `size` of them, `stride` apart from head to head.
  struct HeadColumns {
    const Tensor& tensor;
    int64_t stride = 0;
    int64_t size = 0;
  };
  // out[row][head] = weights[head] · x[row][head].
  void MultiplyHeads(const HeadColumns& x, HeadMatrices weights, const HeadColumns& out) const;
  RopeTables::View AnglesOf(const LatentRope& rope, const LatentShape& shape) const;
  void Rotate(const RopeTables::View& angles,
              const LatentRope& rope,
              int64_t row,
              float* head) const;
  void CheckKv(const LatentShape& shape, int32_t layer) const;

  const LatentContext context_;
};

}  // namespace baton::cpu
