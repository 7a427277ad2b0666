#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/engine/engine.h"
#include "common/engine/executor.h"
#include "common/engine/sequence.h"
#include "tests/fakes/fake_executor.h"

namespace baton {

// Everything that an engine reported about one request.
struct RequestLog {
  std::map<int32_t, std::vector<TokenOutput>> samples;
  std::vector<BlockId> announced;  // kPrefill: the block table, from the calls of OnKvChunk
  std::vector<BlockId> state;      // kPrefill: KvChunk::state of the last chunk
  std::vector<BlockId> under_way;  // kPrefill: blocks of OnKvLayers that still lack OnKvChunk
  int32_t starts = 0;              // kPrefill: number of calls of OnPromptStarted
  int32_t layers_told = 0;         // kPrefill: number of calls of OnKvLayers
  bool all_announced = false;
  std::optional<KvReservation> reservation;
  std::optional<RequestTimes> times;  // set when the request has finished
  std::optional<Status> failure;

  bool begun() const { return !samples.empty() || layers_told > 0 || reservation.has_value(); }
  bool ended() const { return times.has_value() || failure.has_value(); }
  std::vector<TokenId> Tokens(int32_t sample) const;
};

// Records what an engine reports, and collects violations() of the listener's contract: gaps in
// token indices or event numbers, any call after a request's end, and cache events that do not
// change the mirror of the cache.
class RecordingListener final : public EngineListener {
 public:
  void OnTokens(std::span<const TokenOutput> tokens) override;
  void OnFinished(RequestId id, Epoch epoch, const RequestTimes& times) override;
  void OnFailed(const RequestFailure& failure) override;
  void OnPromptStarted(RequestId id, Epoch epoch) override;
  void OnKvLayers(const KvChunk& chunk, int32_t layers) override;
  void OnKvChunk(const KvChunk& chunk) override;
  void OnKvReserved(const KvReservation& reservation) override;
  void OnCacheEvent(const CacheEvent& event) override;
  void OnGaveUp(const Status& status) override;

  RequestLog& log(const RequestKey& key) { return logs_[key]; }
  const std::set<Hash128>& mirror() const { return mirror_; }
  const std::vector<Status>& gave_up() const { return gave_up_; }
  const std::vector<std::string>& violations() const { return violations_; }
  // Sets the index that the request's first output token must have.
  void ExpectFirstIndex(const RequestKey& key, int32_t index) { first_index_[key] = index; }
  // Declares that the test stopped the sample, so that the sample may end without a finish reason.
  void ExpectStopped(const RequestKey& key, int32_t sample) { stopped_.insert({key, sample}); }

 private:
  void Complain(const RequestKey& key, const std::string& what);

  std::map<RequestKey, RequestLog> logs_;
  std::map<RequestKey, int32_t> first_index_;
  std::set<std::pair<RequestKey, int32_t>> stopped_;
  std::set<Hash128> mirror_;
  uint64_t last_event_ = 0;
  std::vector<Status> gave_up_;
  std::vector<std::string> violations_;
};

// The options of an engine and of its executor.
struct HarnessOptions : EngineOptions {
  KvOptions kv;
  GrammarCompiler* grammars = nullptr;  // outlives the harness
};

// An engine with a FakeExecutor, or with an executor of the caller, and a manual clock. All
// invariants are checked after every step.
class EngineHarness {
 public:
  explicit EngineHarness(const HarnessOptions& options, const FakeExecutor::Shape& shape = {});
  // With the arena of `executor` instead of `options.kv`.
  EngineHarness(const HarnessOptions& options, std::unique_ptr<Executor> executor);
  // `executor` outlives the harness.
  EngineHarness(const HarnessOptions& options, Executor& executor);

  Engine& engine() { return *engine_; }
  const Executor& executor() const { return executor_; }
  // Must be called only when the executor is a FakeExecutor.
  FakeExecutor& model() { return *fake_; }
  RecordingListener& listener() { return listener_; }
  ManualClock& clock() { return clock_; }
  RequestLog& log(const Request& request) { return listener_.log({request.id, request.epoch}); }

  void Submit(const Request& request);
  void StopSample(const Request& request, int32_t sample);
  // Moves the clock by 1 ms, runs one step and all checks. gtest failures contain `where`.
  bool Step(const std::string& where = "");
  // Steps until no work is left. Returns false when work is left after `most` steps.
  bool RunUntilIdle(int most = 100000);

 private:
  ManualClock clock_;
  std::unique_ptr<Executor> owned_;  // null: the executor is the caller's
  Executor& executor_;
  FakeExecutor* const fake_;  // null: the executor is another one
  RecordingListener listener_;
  std::unique_ptr<Engine> engine_;
};

// A request with `length` prompt tokens that are determined by `seed`.
Request MakeRequest(uint64_t id, int32_t length, uint64_t seed, int32_t max_tokens);

// Replaces the tokens of `request` by a copy that `edit`, a function of std::vector<TokenId>&, has
// changed.
template <class Edit>
void EditTokens(Request& request, Edit edit) {
  std::vector<TokenId> tokens = request.tokens.ToVector();
  edit(tokens);
  request.tokens = std::move(tokens);
}

}  // namespace baton
