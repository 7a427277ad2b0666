#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string_view>
#include <vector>

#include "common/base/clock.h"
#include "router/core/replay_result.h"
#include "router/core/request_machine.h"
#include "router/core_options.h"
#include "router/routing/pair_book.h"
#include "router/types.h"
#include "router/workers/worker_book.h"

namespace baton::router {

// Chooses a sample of the finished requests, has each of them computed again on another decode
// worker (and another prefill worker, where there is one), and compares the tokens. A replay starts
// only while no client waits for a first token and its workers have room. What waits too long or
// exceeds a bound is dropped and counted. Keeps a request's prompt and output only until its replay
// has ended, and at most ReplayOptions::max_tokens tokens in all.
//
// Pure: no I/O, threads or clock. Owned by RouterCore; not thread-safe.
class Replays final {
 public:
  // `book` and `pairs` outlive the object.
  Replays(const CoreOptions& options, const WorkerBook& book, const PairBook& pairs);

  // A client's request has ended. Keeps it when it belongs to the sample.
  void OnRequestEnd(const RequestMachine& ended, Time now, std::vector<ReplayResult>& results);
  // The replay to submit now; null: none. `busy`: a client waits for its first token.
  std::shared_ptr<const RequestSpec> Next(bool busy, Time now, std::vector<ReplayResult>& results);
  // A replay that Next returned has ended.
  void OnReplayEnd(const RequestMachine& ended, std::vector<ReplayResult>& results);

  // The replays that have been submitted and have not ended.
  std::vector<RequestId> running() const;
  size_t waiting() const { return waiting_.size(); }
  bool idle() const { return waiting_.empty() && running_.empty(); }

 private:
  // A finished request that waits for its replay or is being replayed.
  struct Kept {
    std::shared_ptr<const RequestSpec> spec;
    std::vector<SampleOutput> output;
    WorkerPair workers;
    Time since{};
    int64_t tokens = 0;   // of prompt and output
    int32_t longest = 0;  // the most tokens of one sample
  };

  std::optional<WorkerSlot> ChooseDecode(const Kept& kept) const;
  WorkerSlot ChoosePrefill(const Kept& kept, WorkerSlot decode, Time now) const;
  bool HasRoom(WorkerSlot slot, const Kept& kept) const;
  int64_t BlocksFor(const Kept& kept, int32_t block_tokens) const;
  void Skip(const Kept& kept, ReplaySkip why, std::vector<ReplayResult>& results);

  const ReplayOptions options_;
  const uint64_t tag_;
  const WorkerBook& book_;
  const PairBook& pairs_;
  std::mt19937_64 random_;
  std::deque<Kept> waiting_;
  std::map<RequestId, Kept> running_;  // by the id of the replay
  int64_t tokens_ = 0;                 // of all kept requests
  uint64_t replays_ = 0;
};

// The first difference between the two outputs of a request; nullopt: they are equal. Where the
// first output was cut (SampleOutput::cut), its replay may go on, and only the common part is
// compared.
std::optional<ReplayDifference> FirstDifference(const std::vector<SampleOutput>& first,
                                                const std::vector<SampleOutput>& replay);

}  // namespace baton::router
