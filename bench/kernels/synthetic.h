#pragma once

#include <memory>
#include <vector>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/ops.h"

namespace baton::bench {

// Each function registers the benchmarks of one file: ops, sampling, step.
void RegisterOps();
void RegisterSampling();
void RegisterSteps();

// The instruction set of every Backend: the best one, unless main sets another.
CpuIsa& IsaInUse();

// The CPU backend with `threads` threads. Aborts when the backend cannot be created.
struct Backend {
  explicit Backend(int threads);
  CpuDevice device;
  std::unique_ptr<Ops> ops;
};

// A matrix with random weights.
std::unique_ptr<Matrix> RandomMatrix(Ops& ops, DType dtype, int64_t rows, int64_t cols);
// The same of weights with groups, whose scales and zero points are all alike.
struct GroupForm {
  const char* name;
  int64_t group_rows;
  int64_t group_cols;  // 0: all
  DType dtype;
  ScaleType scale_type;
  bool zeros = false;
};
std::unique_ptr<Matrix> RandomGroups(Ops& ops, const GroupForm& form, int64_t rows, int64_t cols);
std::unique_ptr<Matrix> RandomGateUp(Ops& ops, DType dtype, int64_t rows, int64_t cols);
std::vector<float> RandomValues(size_t count);

// Activations [rows][cols].
class Activations final {
 public:
  Activations(int64_t rows, int64_t cols);
  Tensor view(int64_t rows) const;

 private:
  mutable std::vector<float> values_;
  int64_t cols_;
};

// A KV cache for `sequences` sequences of up to `tokens` tokens each, and steps that use this
// cache.
class Sequences final {
 public:
  Sequences(Ops& ops,
            DType dtype,
            int32_t layers,
            const HeadShape& heads,
            int32_t sequences,
            int32_t tokens);

  // A step in which every sequence computes `rows` tokens after `context` earlier ones. Only the
  // last row of each sequence yields logits.
  StepInput Step(int32_t context, int32_t rows);
  const KvView& view() const { return view_; }

 private:
  int32_t sequences_;
  int32_t blocks_each_;
  KvView view_;
  std::unique_ptr<Buffer> buffer_;
  std::vector<TokenId> tokens_;
  std::vector<int32_t> positions_;
  std::vector<SequenceRows> rows_;
  std::vector<int32_t> tables_;
  std::vector<int32_t> logit_rows_;
};

}  // namespace baton::bench
