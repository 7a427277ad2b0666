#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/cuda/attention/attention.h"
#include "tests/gpu/attention_reference.h"

// Code that the test and the benchmark of attention share: an arena with known keys and values,
// steps that use it, and a comparison with a simple reference.
namespace baton::cuda::testing {

// Whether the kernels of Hopper may run: stream-K and FlashAttention 3.
bool IsHopper();

// Aborts the program with a message when `error` is not cudaSuccess.
void Check(cudaError_t error, const char* what);
// Aborts the program with a message when `status` is not OK.
void Check(const Status& status, const char* what);

// Device memory, freed on destruction.
class Memory {
 public:
  explicit Memory(size_t bytes);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  std::byte* data() const { return data_; }
  size_t size() const { return size_; }

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

struct FixtureShape {
  AttentionShape shape;
  DType kv_dtype = DType::kBF16;
  int32_t block_tokens = 16;
  int32_t layers = 2;
  int32_t tokens = 0;  // capacity of the arena; a block holds tokens of one sequence only
  // The KV heads of the shape, as a part of a model's. None of a model: the model has no others.
  HeldHeads heads = {0, 0};
};

// (context, rows) of each sequence of a step.
using Lengths = std::vector<std::pair<int32_t, int32_t>>;
// The capacity of an arena that holds the sequences in blocks of up to 256 tokens.
int32_t TokensOf(const Lengths& lengths);

// An arena whose blocks are allocated in shuffled order. The key and the value of (sequence,
// position) are a hash of the two; all other memory is NaN. Sinks, where the shape has them, lie
// below, among and above the logits. KV in FP8 has a scale for each head,
// which rows do not apply that read K and V from qkv: only single rows, and all rows in
// deterministic mode, then match the reference.
class Fixture {
 public:
  Fixture(const FixtureShape& shape, const AttentionOptions& options);

  // Begins a step: allocates its blocks, writes keys and values of all positions to all layers, and
  // those of the step's rows to qkv. The step is recorded when `padded_rows` is not 0. The keys of
  // sequence i are those of sequence number `numbers[i]` (i when `numbers` is empty).
  void Begin(const Lengths& lengths, int32_t padded_rows, const std::vector<int32_t>& numbers = {});
  // Plans the step and uploads the plan.
  AttentionPlan Plan();
  // Launches attention of one layer.
  void Launch(const AttentionPlan& plan, int32_t layer);
  // As Launch, with a result in FP8. Returns the result times its scales, [row][q head][dim]
  // without padding.
  std::vector<float> LaunchFp8(const AttentionPlan& plan, int32_t layer);
  // The result of the last Launch, converted to FP8 by LaunchQuantize, in the form of LaunchFp8.
  std::vector<float> QuantizedOut();
  // Fills `out` with a pattern that PaddingUntouched recognises.
  void ClearOut();

  // The largest relative error (L2, of one head of one row) against the reference; 1e9 when a
  // result is NaN.
  double Error(int32_t layer);
  // Whether the padding rows still have the pattern of ClearOut.
  bool PaddingUntouched();
  // The results of `count` rows, as bits.
  std::vector<uint16_t> Rows(int32_t first, int32_t count);

  const StepLayout& step() const { return step_; }
  const KvView& kv() const { return kv_; }
  Attention& attention() { return *attention_; }
  cudaStream_t stream() const { return stream_; }
  int32_t rows() const { return static_cast<int32_t>(tokens_.size()); }

 private:
  void LaunchTo(const AttentionPlan& plan, int32_t layer, const Fp8Rows& fp8_out);
  // Calls write(fp8_out) and returns the numbers that it wrote times their scales.
  std::vector<float> Fp8Numbers(const std::function<void(const Fp8Rows&)>& write);
  // The scales of K and V of each head; null unless KV is in FP8.
  const float* kv_scales() const;
  // The sinks of the query heads; null unless the shape has them.
  const float* sinks() const;

  FixtureShape shape_;
  std::unique_ptr<Attention> attention_;
  std::unique_ptr<Memory> arena_;
  std::unique_ptr<Memory> qkv_;
  std::unique_ptr<Memory> out_;
  std::unique_ptr<Memory> kv_scales_;
  std::unique_ptr<Memory> sinks_;
  std::unique_ptr<StepBuffer> fixed_;
  std::unique_ptr<StepBuffer> lists_;
  cudaStream_t stream_ = nullptr;
  KvView kv_;
  Tensor qkv_view_;
  Tensor out_view_;
  std::vector<int32_t> shuffled_;
  // The current step.
  std::vector<TokenId> tokens_;
  std::vector<int32_t> positions_;
  std::vector<SequenceRows> sequences_;
  std::vector<int32_t> tables_;
  std::vector<int32_t> logit_rows_;
  StepInput input_;
  StepLayout step_;
};

}  // namespace baton::cuda::testing
