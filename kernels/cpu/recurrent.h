#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "kernels/cpu/cpu_exchange.h"
#include "kernels/cpu/kernel_table.h"
#include "kernels/kv_view.h"
#include "kernels/recurrent_ops.h"
#include "kernels/state_chains.h"
#include "kernels/step_input.h"
#include "kernels/thread_pool.h"

namespace baton::cpu {

// What recurrent layers use of the CpuOps that owns them: all of it lives as long.
struct RecurrentContext {
  const KernelTable& kernels;
  ThreadPool& pool;
  const CpuExchange& exchange;
  // The current step.
  const StepInput& input;
  const KvView& kv;
  const StateChains& chains;
  std::vector<std::vector<float>>& scratch;  // per thread
};

// Recurrent layers, row by row, on the thread pool of CpuOps. One thread at a time; bad arguments
// are bugs of the caller (CHECK).
class CpuRecurrentOps final : public RecurrentOps {
 public:
  explicit CpuRecurrentOps(const RecurrentContext& context) : context_(context) {}

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
  struct Task;
  struct ScanTask;

  // The rows of one head of a sequence: [first, first + count), at positions from `position` on. A
  // row that is in its state already is not added to it.
  struct Rows {
    int32_t first = 0;
    int32_t count = 0;
    int32_t position = 0;
    bool update = true;
  };
  // A plane of the state of one key head: where it begins in a state, and the memory that it is
  // copied to.
  struct Plane {
    int64_t first_byte = 0;
    std::span<float> numbers = {};
  };
  enum class PlaneKind : uint8_t { kMatrices, kInputs };

  // Where the plane of a key head is in the state of the layer.
  static int64_t FirstByte(const RecurrentArgs& args,
                           const KvView& kv,
                           PlaneKind kind,
                           int32_t key_head);
  void CheckArgs(const RecurrentArgs& args) const;
  // Calls compute(memory, key head, indices of sequences) for each key head of each chain, on the
  // threads. `memory` has `numbers` numbers.
  void ForHeads(
      const RecurrentArgs& args,
      int64_t numbers,
      const std::function<void(float*, int32_t, std::span<const int32_t>)>& compute) const;
  // Reads the planes of a sequence, calls compute with its rows, and writes the planes.
  void WithState(int32_t sequence,
                 std::span<const Plane> planes,
                 const std::function<void(const Rows&)>& compute) const;
  // Makes the row at `position` the newest input, if it is new, and computes silu(convolution).
  // `inputs` is the plane of a key head; `newest` has its channels.
  void ConvolveRow(const RecurrentArgs& args,
                   int32_t key_head,
                   int32_t position,
                   std::span<const float> inputs,
                   float* out) const;

  void RunRow(const Task& task, int64_t row, int32_t position, bool update) const;
  // Copies the new inputs of the convolution of a row into the ring of inputs.
  void TakeInputs(const Task& task, const float* x, int32_t position) const;
  // Computes what a row needs of its gates: StateStepArgs::decay, decays and beta.
  void MakeFactors(const Task& task, const float* x, const float* gates) const;
  // Multiplies the outputs of the value heads of a row by their gates, and normalises them.
  void FinishRow(const Task& task, const float* x, float* out) const;
  void Normalise(float* x, const float* weight, float epsilon, int64_t size, float* out) const;
  void ScanRow(const ScanTask& task, int64_t row, bool update) const;
  float Exp(float x) const;
  // ln(1 + eˣ).
  float SoftPlus(float x) const;

  const RecurrentContext context_;
};

}  // namespace baton::cpu
