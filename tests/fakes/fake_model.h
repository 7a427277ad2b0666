#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "common/engine/model_runner.h"
#include "common/engine/request.h"

namespace baton {

// Host memory for tests; counts what is given out.
class FakeDevice final : public Device {
 public:
  std::string name() const override { return "fake"; }
  StatusOr<std::unique_ptr<Buffer>> Allocate(size_t bytes, Sharing sharing) override;
  Status CopyIn(const Buffer& to, size_t offset, std::span<const std::byte> from) override;
  Status CopyOut(const Buffer& from, size_t offset, std::span<std::byte> to) override;
  size_t free_bytes() const override { return size_t{1} << 30; }
};

// A model whose next token is a hash of everything a real one may look at: the whole visible KV as
// it lies in the blocks, the sampling parameters, the seed and position, the split of prompt and
// output. It writes real KV blocks and reads them back, so a wrong block, stale KV, a missed copy
// or a wrong position changes the tokens from there on.
class FakeModel final : public ModelRunner {
 public:
  struct Shape {
    int32_t context_length = 512;
    int32_t vocabulary = 1000;
    int32_t max_rows = 4096;
    int32_t max_logit_rows = 1024;
    // Steps are queued as on a GPU, and run as late as can be: when they are awaited.
    bool queues_steps = false;
  };

  FakeModel() : FakeModel(Shape{}) {}
  explicit FakeModel(const Shape& shape);
  ~FakeModel() override;

  const ModelTraits& traits() const override { return traits_; }
  Device& device() override { return device_; }
  bool queues_steps() const override { return queues_steps_; }
  Status Issue(const StepInput& input,
               const KvView& kv,
               std::span<const SamplingRow> sampling,
               std::span<SampledToken> out,
               const LayerWatch& watch) override;
  Status Await() override;
  Status CopyBlocks(const KvView& kv, std::span<const BlockCopy> copies) override;

  // Steps that were issued behind another one.
  int64_t steps_behind() const { return steps_behind_; }
  // The next `count` runs fail; with `late`, after they told of every layer.
  void FailRuns(int count, bool late = false) {
    failing_runs_ = count;
    fails_late_ = late;
  }
  // Rows of prompts that begin with `token` get logits of which nothing can be chosen, from the
  // output token number `output` on; with a seed, only those that draw with that.
  void PoisonPrompts(TokenId token, size_t output = 0, std::optional<uint64_t> seed = {}) {
    poison_ = {token, output, seed};
  }
  // Every run from now on fails, as on a device that is lost. From any thread.
  void LoseDevice() { lost_ = true; }
  // Runs wait from now on once there were `total` of them. From any thread.
  void AllowRuns(int64_t total) {
    allowed_runs_ = total;
    allowed_runs_.notify_all();
  }
  // Reads of KV that no row has written.
  int64_t faults() const { return faults_; }
  int64_t rows_run() const { return rows_run_; }
  int32_t most_rows() const { return most_rows_; }
  int64_t copies() const { return copies_; }

  // The output tokens that `sample` (counted from 0) of `request` must get from an engine over this
  // model, resumed ones not included: computed without blocks, steps or batches.
  std::vector<TokenId> Expected(const Request& request, int32_t sample) const;

 private:
  // A step, or a copy of blocks, with all that it needs.
  struct Work;

  Status RunNext();
  Status Run(Work& work);
  void Resolve(Work& work);
  void Copy(const Work& work);

  ModelTraits traits_;
  FakeDevice device_;
  const bool queues_steps_;
  std::deque<std::unique_ptr<Work>> queue_;
  std::vector<TokenId> chosen_;  // by the last step
  int64_t steps_behind_ = 0;
  int failing_runs_ = 0;
  bool fails_late_ = false;
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
  int32_t most_rows_ = 0;
  int64_t copies_ = 0;
};

}  // namespace baton
