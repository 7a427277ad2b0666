#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "common/base/check.h"
#include "tests/gpu/rank_threads.h"
#include "tests/gpu/read_logits.h"
#include "tests/unit/model/step_runner.h"

namespace baton {

// A model on several GPUs, for tests: runs every step on all ranks together.
class GroupRunner final {
 public:
  static inline const RunnerOptions kOptions = {.kv_dtype = DType::kBF16, .limits = {640, 64}};

  // `pipeline`: stages instead of tensor ranks. `model` outlives the result.
  GroupRunner(const OpenedModel& model,
              bool pipeline,
              const CudaOptions& options,
              const RunnerOptions& runner_options = kOptions,
              int ranks = RankThreads::kRanks,
              Duration limit = std::chrono::seconds(30))
      : threads_(pipeline, limit, ranks), runners_(static_cast<size_t>(ranks)) {
    const Status made = threads_.MakeOps(options);
    BATON_CHECK(made.ok(), "{}", Message(made));
    std::mutex loading;  // a weight source serves one thread at a time
    Expect(threads_.Run([&](int rank) -> Status {
      const std::lock_guard lock(loading);
      BATON_ASSIGN_OR_RETURN(
          runners_[static_cast<size_t>(rank)],
          StepRunner::Create(
              model.spec, *model.weights, runner_options, {&threads_.ops(rank), ReadDevice}));
      return OkStatus();
    }));
  }
  ~GroupRunner() {
    for (auto& runner : runners_) runner.reset();
    threads_.Close();
  }

  // The leader's logits.
  std::vector<Logits> Step(const std::vector<Chunk>& chunks) {
    std::vector<Logits> logits;
    Expect(threads_.Run([&](int rank) -> Status {
      BATON_ASSIGN_OR_RETURN(auto mine, runner(rank).TryStep(chunks));
      if (rank == 0) logits = std::move(mine);
      return OkStatus();
    }));
    return logits;
  }
  void Reset() {
    for (auto& runner : runners_) runner->Reset();
  }
  RankThreads& threads() { return threads_; }
  StepRunner& runner(int rank) { return *runners_[static_cast<size_t>(rank)]; }

 private:
  static void Expect(const std::vector<Status>& results) {
    for (const Status& status : results) BATON_CHECK(status.ok(), "{}", Message(status));
  }

  RankThreads threads_;
  std::vector<std::unique_ptr<StepRunner>> runners_;
};

}  // namespace baton
