#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cpu/cpu_exchange.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/state_chains.h"
#include "kernels/delta_net_ops.h"
#include "kernels/kv_view.h"
#include "kernels/step_input.h"
#include "kernels/thread_pool.h"

namespace baton::cpu {

// What delta nets use of the CpuOps that owns them: all of it lives as long.
struct DeltaNetContext {
  const KernelTable& kernels;
  ThreadPool& pool;
  const CpuExchange& exchange;
  // The current step.
  const StepInput& input;
  const KvView& kv;
  const StateChains& chains;
  std::vector<std::vector<float>>& scratch;  // per thread
};

// Gated delta nets, row by row, on the thread pool of CpuOps. One thread at a time; bad arguments
// are bugs of the caller (CHECK).
class CpuDeltaNetOps final : public DeltaNetOps {
 public:
  explicit CpuDeltaNetOps(const DeltaNetContext& context) : context_(context) {}

  void RunDeltaNet(const Tensor& x,
                   const Tensor& gates,
                   const DeltaNetArgs& args,
                   const Tensor& out) override;

 private:
  struct Task;

  // All rows of one sequence, for one key head and its value heads.
  void RunSequence(const Task& task, const SequenceRows& sequence) const;
  void RunRow(const Task& task, int64_t row, int32_t position, bool update) const;
  // Stores the factors of each value head of a row.
  void MakeFactors(const Task& task, const float* gates) const;
  float Exp(float x) const;
  // ln(1 + eˣ).
  float SoftPlus(float x) const;

  const DeltaNetContext context_;
};

}  // namespace baton::cpu
