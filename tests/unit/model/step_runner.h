#pragma once

#include <cstdint>
#include <deque>
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

// A part of a step: the next tokens of one sequence.
struct Chunk {
  int32_t sequence = 0;
  std::span<const TokenId> tokens;
  WantLogits want = WantLogits::kLast;
  // The last token of the sequence is computed once more; its states have it already.
  bool in_state = false;
};

// The Ops that a decoder uses, and a function that copies its logits to the host.
struct RunnerDevice {
  Ops* ops = nullptr;
  std::function<std::vector<Logits>(const Tensor&)> read;
};

struct RunnerOptions {
  DType kv_dtype = DType::kF32;
  int32_t kv_blocks = 256;
  DecoderLimits limits{640, 640};
  int threads = 1;
  CpuIsa isa = BestCpuIsa();
  RankGroups groups = {};  // the runner is one rank of these groups
  ExchangeMode exchange = ExchangeMode::kGather;
  bool cache_groups = true;  // where the backend has them
};

// Runs a decoder step by step, for tests. Uses the CPU backend unless a RunnerDevice is given, and
// a paged KV arena whose blocks are allocated in a scattered order. Each step writes the state of a
// sequence into other blocks than it reads it from, if layers have states.
class StepRunner final {
 public:
  static StatusOr<std::unique_ptr<StepRunner>> Create(const ModelSpec& spec,
                                                      const WeightSource& weights,
                                                      const RunnerOptions& options = {},
                                                      const RunnerDevice& device = {});

  // Runs all chunks in one step. Returns the logits of the wanted rows, in order; none on a rank
  // that is not the leader.
  std::vector<Logits> Step(std::span<const Chunk> chunks, const LayerHook& hook = {});
  // The same, but returns the error of a step that fails.
  StatusOr<std::vector<Logits>> TryStep(std::span<const Chunk> chunks, const LayerHook& hook = {});
  // The two parts of a step on the leader of a pipeline: several steps may be issued before the
  // logits of the oldest one are taken.
  Status Issue(std::span<const Chunk> chunks);
  StatusOr<std::vector<Logits>> Take();
  std::vector<Logits> Step(const Chunk& chunk) { return Step(std::span(&chunk, 1)); }
  // Runs `tokens` in chunks of `chunk_rows`. Returns the logits after each token.
  std::vector<Logits> RunAll(int32_t sequence, std::span<const TokenId> tokens, size_t chunk_rows);
  // Removes all sequences.
  void Reset();

  Decoder& decoder() { return *decoder_; }
  // The cache group that uses a block of the arena; the first one if none does.
  int32_t GroupOf(int32_t block) const { return group_of_[static_cast<size_t>(block)]; }
  // The numbers of one head of a plane of a state in a layer of this rank.
  std::vector<float> StateOf(int32_t sequence, int32_t layer, int32_t plane, int32_t head) const;
  // All bytes of a state.
  std::vector<std::byte> StateBytesOf(int32_t sequence) const;
  const KvLayout& layout() const { return layout_; }
  // The arena of this rank's shard. Blocks that were never used are zeros.
  KvView kv() const {
    return MakeView(layout_, decoder_->plan().kv_shard, places_, arena_->data(), blocks_);
  }

 private:
  struct Sequence {
    int32_t context = 0;
    std::vector<std::vector<int32_t>> blocks;  // by cache group of blocks of tokens
    std::vector<int32_t> state;
    std::vector<int32_t> next_state;
  };

  // A step as input of kernels.
  struct Batch {
    std::vector<TokenId> tokens;
    std::vector<int32_t> positions;
    std::vector<SequenceRows> rows;
    std::vector<int32_t> tables;
    std::vector<int32_t> logit_rows;
    int32_t state_blocks = 0;

    StepInput input() const {
      return {tokens, positions, rows, tables, logit_rows, RowResults::kLogits, state_blocks};
    }
  };

  StepRunner() = default;
  // Takes a block for a cache group.
  int32_t TakeBlock(int32_t group);
  Sequence& Grow(int32_t sequence, size_t tokens);
  Batch MakeBatch(std::span<const Chunk> chunks);
  static void AppendStates(const Chunk& chunk, Sequence& sequence, Batch& batch);

  std::unique_ptr<CpuDevice> cpu_;
  std::unique_ptr<Ops> cpu_ops_;
  RunnerDevice device_;
  std::unique_ptr<Decoder> decoder_;
  std::unique_ptr<Buffer> arena_;
  KvLayout layout_;
  std::vector<KvLayerPlace> places_;
  int32_t blocks_ = 0;
  int32_t state_blocks_ = 0;
  std::vector<int32_t> group_of_;  // by block
  int32_t used_blocks_ = 0;
  std::vector<Sequence> sequences_;
  std::deque<size_t> issued_;  // the logit rows of the steps that Issue began
};

// The index of the highest logit; the lower index on a tie.
TokenId ArgMax(const Logits& logits);
// −ln of the softmax probability of `token`, computed in double precision.
double NegativeLogLikelihood(std::span<const float> logits, TokenId token);

}  // namespace baton
