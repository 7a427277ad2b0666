#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cpu/attention_ranges.h"
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
  // Columns of each head in turn: `size` of them, `stride` apart from head to head.
  struct HeadColumns {
    const Tensor& tensor;
    int64_t stride = 0;
    int64_t size = 0;
  };
  // out[row][head] = weights[head] · x[row][head].
  void MultiplyHeads(const HeadColumns& x, HeadMatrices weights, const HeadColumns& out) const;
  RopeTables::View AnglesOf(const LatentRope& rope, int32_t rope_dim) const;
  void Rotate(const RopeTables::View& angles,
              const LatentRope& rope,
              int64_t row,
              float* head) const;
  void CheckKv(const LatentShape& shape, int32_t layer) const;
  void CheckIndex(const IndexShape& shape, int32_t layer) const;
  const SequenceRows& SequenceOf(int64_t row) const;
  int32_t PositionOf(int64_t row) const;
  // Where a row's token is in the cache.
  struct Slot {
    int32_t block = 0;
    int64_t token = 0;  // of the block
  };
  Slot SlotOf(int64_t row, int32_t layer) const;
  // Some rows of a sequence and some of their heads, which one attention task computes.
  struct Part {
    RowRange range;
    int32_t first_head = 0;
    int32_t heads = 0;
  };
  // The parts of all rows, or of those ranges that have logit rows. The first ones take longest.
  std::vector<Part> PartsOf(const LatentAttentionArgs& args) const;
  // The attention task of a part, which lacks scratch memory.
  AttentionTask TaskOf(const Tensor& q,
                       const LatentAttentionArgs& args,
                       const Tensor& out,
                       const Part& part) const;
  // Makes `task`, of one row, attend to the selected positions alone.
  void GatherSelected(std::span<const float> selected, int thread, AttentionTask& task);
  // The part of SelectTokens for rows that must choose.
  void RankTokens(std::span<const int64_t> rows,
                  const Tensor& q,
                  const Tensor& weights,
                  const SelectArgs& args,
                  const Tensor& out);

  const LatentContext context_;
  std::vector<float> index_memory_;               // of SelectTokens
  std::vector<std::vector<std::byte>> gathered_;  // by thread: the latents that a row attends to
  std::vector<int32_t> gathered_blocks_;          // 0, 1, …: their block table
};

}  // namespace baton::cpu
