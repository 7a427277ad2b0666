#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/kvcache/layout.h"
#include "common/model/decoder.h"
#include "common/model/open_model.h"
#include "kernels/cpu/cpu_backend.h"

namespace baton {

using Logits = std::vector<float>;  // [vocab]

enum class WantLogits { kNone, kLast, kAll };

// Part of a step: tokens that go on where a sequence stands.
struct Chunk {
  int32_t sequence = 0;
  std::span<const TokenId> tokens;
  WantLogits want = WantLogits::kLast;
};

// Where a decoder runs, and how to bring its logits from there.
struct RunnerDevice {
  Ops* ops = nullptr;
  std::function<std::vector<Logits>(const Tensor&)> read;
};

struct RunnerOptions {
  DType kv_dtype = DType::kF32;
  int32_t kv_blocks = 256;
  DecoderLimits limits{640, 640};
  int threads = 1;
};

// Runs a decoder step by step, on the CPU backend unless told otherwise, with a paged KV arena
// whose blocks are handed out in a scattered order. For tests.
class StepRunner final {
 public:
  static StatusOr<std::unique_ptr<StepRunner>> Create(const ModelSpec& spec,
                                                      const WeightSource& weights,
                                                      const RunnerOptions& options = {},
                                                      const RunnerDevice& device = {});

  // Runs all chunks in one step; gives the wanted rows' logits, in order.
  std::vector<Logits> Step(std::span<const Chunk> chunks, const LayerHook& hook = {});
  std::vector<Logits> Step(const Chunk& chunk) { return Step(std::span(&chunk, 1)); }
  // Logits after each of `tokens`, run in chunks of `chunk_rows`.
  std::vector<Logits> RunAll(int32_t sequence, std::span<const TokenId> tokens, size_t chunk_rows);
  // Forgets all sequences.
  void Reset();

  Decoder& decoder() { return *decoder_; }
  // The arena; blocks that no sequence has are zeros.
  KvView kv() const { return MakeView(layout_, WholeModel(layout_), arena_->data(), blocks_); }

 private:
  struct Sequence {
    int32_t context = 0;
    std::vector<int32_t> blocks;
  };

  StepRunner() = default;
  Sequence& Grow(int32_t sequence, size_t tokens);

  std::unique_ptr<CpuDevice> cpu_;
  std::unique_ptr<Ops> cpu_ops_;
  RunnerDevice device_;
  std::unique_ptr<Decoder> decoder_;
  std::unique_ptr<Buffer> arena_;
  KvLayout layout_;
  int32_t blocks_ = 0;
  int32_t used_blocks_ = 0;
  std::vector<Sequence> sequences_;
};

// Index of the highest logit; ties go to the lower index.
TokenId ArgMax(const Logits& logits);
// −ln of the softmax probability of `token`, computed in double.
double NegativeLogLikelihood(std::span<const float> logits, TokenId token);

}  // namespace baton
