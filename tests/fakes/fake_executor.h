#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/cluster/request.h"
#include "common/engine/executor.h"
#include "common/grammar/grammar.h"

namespace baton {

// A device whose memory is zeroed host memory.
class FakeDevice final : public Device {
 public:
  std::string name() const override { return "fake"; }
  StatusOr<std::unique_ptr<Buffer>> Allocate(size_t bytes, Sharing sharing) override;
  Status CopyIn(const Buffer& to, size_t offset, std::span<const std::byte> from) override;
  Status CopyOut(const Buffer& from, size_t offset, std::span<std::byte> to) override;
  size_t free_bytes() const override { return size_t{1} << 30; }
};

// An executor whose model's next token is a hash of everything that a real model may depend on: the
// whole visible KV of each layer as stored in the blocks, the sampling parameters, the seed and
// position, and the split into prompt and output. It writes real KV blocks and reads them back. A
// wrong block, stale KV, a missing copy or a wrong position therefore changes all later tokens.
class FakeExecutor final : public Executor {
 public:
  struct Shape {
    int32_t context_length = 512;
    int32_t hidden = 4;  // at most 4
    int32_t vocabulary = 1000;
    int32_t max_rows = 4096;
    int32_t max_logit_rows = 1024;
    // By layer (DenseKv::windows); sliding ones are of at least 2 tokens.
    std::vector<KvWindow> windows = {0};
    // Layers with a state in place of KV, ascending, of `state_dim` elements, at least 4.
    std::vector<int32_t> state_layers = {};
    int32_t state_dim = 40;
    // Steps are queued as on a GPU. Each runs as late as possible: in the Await for this step.
    bool queues_steps = false;
    // The number of pipeline stages, and of steps that may be under way. Each step runs as late as
    // possible, as above, but Issue reports its layers, as on a CPU; with `reports_late`, its Await
    // does, as on a GPU.
    int32_t stages = 1;
    bool reports_late = false;
  };

  // `kv.dtype` is ignored: the model stores 64 bits in a position.
  explicit FakeExecutor(const KvOptions& kv) : FakeExecutor(kv, Shape{}) {}
  FakeExecutor(const KvOptions& kv, const Shape& shape);
  // With the arena in the memory of `device`, which is zeroed.
  FakeExecutor(const KvOptions& kv, const Shape& shape, std::unique_ptr<Device> device);
  ~FakeExecutor() override;

  const ModelTraits& traits() const override { return traits_; }
  const KvLayout& kv_layout() const override { return arena_.layout; }
  int32_t kv_blocks() const override { return arena_.view.blocks; }
  std::span<const KvArena> kv_arenas() const override { return {&arena_.arena, 1}; }
  std::string device_name() const override { return device_->name(); }
  bool queues_steps() const override { return queues_steps_; }
  bool samples_later() const override { return queues_steps_; }
  Status IssueSampling(std::span<const SamplingRow> sampling, std::span<SampledToken> out) override;
  bool has_late_rows() const override { return queues_steps_ && has_late_rows_; }
  int32_t stages() const override { return stages_; }
  Status Issue(const StepInput& input,
               std::span<const SamplingRow> sampling,
               std::span<SampledToken> out,
               const LayerWatch& watch) override;
  Status Await() override;
  Status CopyBlocks(std::span<const BlockCopy> copies) override;

  // The number of steps that were issued while another step was in the queue.
  int64_t steps_behind() const { return steps_behind_; }
  // By the number of steps under way after Issue, itself included: how many steps were issued.
  const std::map<size_t, int64_t>& issued_as() const { return issued_as_; }
  // The next `count` runs fail. With `late`, they fail after they have reported every layer.
  void FailRuns(int count, bool late = false) {
    failing_runs_ = count;
    fails_late_ = late;
  }
  // For prompts that begin with `token`, sampling chooses no token from output token `output` on.
  // With a seed, this applies only to samples with that seed.
  void PoisonPrompts(TokenId token, size_t output = 0, std::optional<uint64_t> seed = {}) {
    poison_ = {token, output, seed};
  }
  // The masks of the next `count` rows to be sampled are late, except of rows that wait for theirs.
  void DelayMasks(int count) { late_masks_ = count; }
  // The masks of the next step are late, except of its first `count` rows that have one.
  void DelayMasksFrom(int count) { masks_in_time_ = count; }
  // Every run from now on fails, as on a lost device. May be called from any thread.
  void LoseDevice() { lost_ = true; }
  // From now on a run blocks when `total` runs have started before it. May be called from any
  // thread.
  void AllowRuns(int64_t total) {
    allowed_runs_ = total;
    allowed_runs_.notify_all();
  }
  // The number of reads of KV that no row has written, and of steps that may not be under way
  // together.
  int64_t faults() const { return faults_; }
  int64_t rows_run() const { return rows_run_; }
  int32_t max_step_rows() const { return max_step_rows_; }
  int64_t copies() const { return copies_; }

  // The output tokens that `sample` (counted from 0) of `request` must get from an engine with this
  // model, without the tokens that a resumed request brings along. They are computed without
  // blocks, steps or batches.
  // `grammar`: the one of a constrained request.
  std::vector<TokenId> Expected(const Request& request,
                                int32_t sample,
                                const Grammar* grammar = nullptr) const;
  // What the first token of a request with prompt_logprobs must bring along.
  std::vector<SampledToken> ExpectedPrompt(const Request& request) const;

 private:
  // A queued step or block copy, with copies of all its inputs.
  struct Work;

  bool late() const { return queues_steps_ || stages_ > 1; }
  void CheckDisjoint(const Work& work);
  void SetSampling(std::span<const SamplingRow> sampling, Work& work);
  Status RunNext();
  Status Run(Work& work);
  void Resolve(Work& work);
  // Computes one layer of some rows of a sequence. Returns the values of the positions that the
  // rows see, from position `begin` on.
  std::vector<uint64_t> RunLayer(const Work& work,
                                 const SequenceRows& rows,
                                 int32_t layer,
                                 int32_t begin);
  // The same of a layer with a state: the value of the state after each row.
  std::vector<uint64_t> RunState(const Work& work, const SequenceRows& rows, int32_t layer);
  bool has_state(int32_t layer) const;
  // The first position that a row at `position` sees in a layer.
  int32_t FirstSeen(int32_t layer, int32_t position) const;
  void Copy(const Work& work);

  ModelTraits traits_;
  // By layer, how many of the last tokens a row sees; 0: all. Of a state, the last value.
  std::vector<KvWindow> seen_;
  const std::unique_ptr<Device> device_;
  const OwnedArena arena_;
  const bool queues_steps_;
  const int32_t stages_;
  const bool reports_late_;
  std::deque<std::unique_ptr<Work>> queue_;
  std::vector<TokenId> chosen_;  // tokens that the last step sampled
  int64_t steps_behind_ = 0;
  std::map<size_t, int64_t> issued_as_;
  int failing_runs_ = 0;
  bool fails_late_ = false;
  int late_masks_ = 0;
  int masks_in_time_ = std::numeric_limits<int>::max();
  bool has_late_rows_ = false;  // in the newest step
  struct Poison {
    TokenId token = 0;
    size_t output = 0;
    std::optional<uint64_t> seed;
  };
  std::optional<Poison> poison_;
  std::atomic<bool> lost_ = false;
  std::atomic<int64_t> allowed_runs_ = INT64_MAX;
  int64_t runs_ = 0;
  int64_t faults_ = 0;
  int64_t rows_run_ = 0;
  int32_t max_step_rows_ = 0;
  int64_t copies_ = 0;
};

}  // namespace baton
