#include "tests/fakes/engine_harness.h"

#include <algorithm>
#include <random>
#include <utility>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "common/base/check.h"

namespace baton {

std::vector<TokenId> RequestLog::Tokens(int32_t sample) const {
  std::vector<TokenId> tokens;
  const auto found = samples.find(sample);
  if (found == samples.end()) return tokens;
  for (const TokenOutput& output : found->second) tokens.push_back(output.token.token);
  return tokens;
}

void RecordingListener::Complain(const RequestKey& key, const std::string& what) {
  violations_.push_back(fmt::format("request {}.{}: {}", key.first, key.second, what));
}

void RecordingListener::OnTokens(std::span<const TokenOutput> tokens) {
  for (const TokenOutput& output : tokens) {
    const RequestKey key{output.id, output.epoch};
    RequestLog& log = logs_[key];
    std::vector<TokenOutput>& sample = log.samples[output.sample];
    const int32_t first = first_index_.contains(key) ? first_index_[key] : 0;
    const int32_t want = sample.empty() ? first : sample.back().index + 1;
    if (output.index != want) Complain(key, fmt::format("index {} not {}", output.index, want));
    if (!sample.empty() && sample.back().finish != FinishReason::kNone) {
      Complain(key, "a token after the last one");
    }
    if (log.ended()) Complain(key, "a token after the end");
    sample.push_back(output);
  }
}

void RecordingListener::OnFinished(RequestId id, Epoch epoch, const RequestTimes& times) {
  RequestLog& log = logs_[{id, epoch}];
  if (log.ended()) Complain({id, epoch}, "finished after its end");
  for (const auto& [sample, outputs] : log.samples) {
    const bool stopped = stopped_.contains({{id, epoch}, sample});
    if (outputs.back().finish == FinishReason::kNone && !stopped) {
      Complain({id, epoch}, "finished too early");
    }
  }
  log.times = times;
}

void RecordingListener::OnFailed(const RequestFailure& failure) {
  RequestLog& log = logs_[{failure.id, failure.epoch}];
  if (log.ended()) Complain({failure.id, failure.epoch}, "failed after its end");
  log.failure = failure.status;
}

void RecordingListener::OnPromptStarted(RequestId id, Epoch epoch) {
  RequestLog& log = logs_[{id, epoch}];
  ++log.starts;
  if (log.begun() || log.ended() || log.starts > 1) {
    Complain({id, epoch}, "a prompt started twice, or after its first chunk or its end");
  }
}

void RecordingListener::OnKvLayers(const KvChunk& chunk, int32_t layers) {
  RequestLog& log = logs_[{chunk.id, chunk.epoch}];
  if (std::cmp_not_equal(chunk.first_index * chunk.groups, log.announced.size()) ||
      log.all_announced) {
    Complain({chunk.id, chunk.epoch}, "layers of blocks that are not the next blocks");
  }
  if (layers < 1 || log.ended())
    Complain({chunk.id, chunk.epoch}, "a call of OnKvLayers with no layers or after the end");
  ++log.layers_told;
  log.under_way.assign(chunk.blocks.begin(), chunk.blocks.end());
}

void RecordingListener::OnKvChunk(const KvChunk& chunk) {
  RequestLog& log = logs_[{chunk.id, chunk.epoch}];
  const std::vector<BlockId> told = std::exchange(log.under_way, {});
  if (!told.empty() && !std::ranges::equal(told, chunk.blocks)) {
    Complain({chunk.id, chunk.epoch}, "the chunk has other blocks than the last OnKvLayers");
  }
  if (std::cmp_not_equal(chunk.first_index * chunk.groups, log.announced.size()) ||
      log.all_announced) {
    Complain({chunk.id, chunk.epoch}, "the chunk does not continue the one before it");
  }
  log.announced.insert(log.announced.end(), chunk.blocks.begin(), chunk.blocks.end());
  log.all_announced = chunk.last;
  log.state.assign(chunk.state.begin(), chunk.state.end());
  if (!chunk.last && !log.state.empty()) {
    Complain({chunk.id, chunk.epoch}, "a state before the last chunk");
  }
}

void RecordingListener::OnKvReserved(const KvReservation& reservation) {
  RequestLog& log = logs_[{reservation.id, reservation.epoch}];
  if (log.reservation || log.ended()) {
    Complain({reservation.id, reservation.epoch},
             "a second reservation, or a reservation after the end");
  }
  log.reservation = reservation;
}

void RecordingListener::OnCacheEvent(const CacheEvent& event) {
  if (event.sequence != ++last_event_) {
    violations_.push_back(fmt::format(
        "cache event {} has the wrong number: expected {}", event.sequence, last_event_));
  }
  if (event.kind == CacheEvent::Kind::kCleared) mirror_.clear();
  for (const Hash128& hash : event.blocks) {
    const bool changed = event.kind == CacheEvent::Kind::kStored ? mirror_.insert(hash).second
                                                                 : mirror_.erase(hash) == 1;
    if (!changed)
      violations_.push_back(fmt::format(
          "cache event {} stores a known block or removes an unknown one", event.sequence));
  }
}

// Before the engine gives up, every request that it began must have been reported as ended.
void RecordingListener::OnGaveUp(const Status& status) {
  gave_up_.push_back(status);
  for (const auto& [key, log] : logs_) {
    if (log.begun() && !log.ended()) Complain(key, "has no end although the engine gave up");
  }
}

EngineHarness::EngineHarness(const HarnessOptions& options, const FakeExecutor::Shape& shape)
    : EngineHarness(options, std::make_unique<FakeExecutor>(options.kv, shape)) {}

EngineHarness::EngineHarness(const HarnessOptions& options, std::unique_ptr<Executor> executor)
    : EngineHarness(options, *executor) {
  owned_ = std::move(executor);
}

EngineHarness::EngineHarness(const HarnessOptions& options, Executor& executor)
    : executor_(executor), fake_(dynamic_cast<FakeExecutor*>(&executor)) {
  auto engine = Engine::Create(options, executor_, listener_, clock_, options.grammars);
  BATON_CHECK(engine.ok(), "{}", Message(engine.status()));
  engine_ = *std::move(engine);
}

void EngineHarness::StopSample(const Request& request, int32_t sample) {
  listener_.ExpectStopped({request.id, request.epoch}, sample);
  engine_->StopSample(request.id, request.epoch, sample);
}

void EngineHarness::Submit(const Request& request) {
  const auto resumed = static_cast<int32_t>(request.tokens.size()) - request.prompt_length;
  listener_.ExpectFirstIndex({request.id, request.epoch},
                             resumed + (request.kind == RequestKind::kDecode ? 1 : 0));
  engine_->Submit(request);
}

bool EngineHarness::Step(const std::string& where) {
  clock_.Advance(std::chrono::milliseconds(1));
  bool worked = engine_->Step();
  // First masks come from other threads. A test is to see the same steps each time.
  while (engine_->Stats().first_masks > 0) {
    engine_->WaitForWork(std::chrono::milliseconds(100));
    worked |= engine_->Step();
  }
  const Status status = engine_->CheckIntegrity();
  EXPECT_TRUE(status.ok()) << where << ": " << status;
  const EngineStats stats = engine_->Stats();
  EXPECT_EQ(stats.blocks_leaked, 0) << where;
  EXPECT_EQ(fake_ ? fake_->faults() : 0, 0) << where;
  EXPECT_TRUE(listener_.violations().empty()) << where << ": " << listener_.violations().front();
  // The events tell of one cache group.
  const auto told = static_cast<int32_t>(listener_.mirror().size());
  const bool one_group = executor_.kv_layout().groups.size() == 1;
  EXPECT_TRUE(one_group ? told == stats.blocks_cached : told <= stats.blocks_cached) << where;
  Hash128 digest;
  for (const Hash128& hash : listener_.mirror()) {
    digest.high ^= hash.high;
    digest.low ^= hash.low;
  }
  EXPECT_TRUE(digest == stats.cache_digest) << where;
  return worked;
}

bool EngineHarness::RunUntilIdle(int most) {
  for (int i = 0; i < most; ++i) {
    if (!Step()) return true;
    if (::testing::Test::HasFailure()) return false;
  }
  return false;
}

Request MakeRequest(uint64_t id, int32_t length, uint64_t seed, int32_t max_tokens) {
  std::mt19937_64 random(seed);
  Request request;
  request.id = RequestId(id);
  std::vector<TokenId> tokens;
  for (int32_t i = 0; i < length; ++i) {
    tokens.push_back(static_cast<TokenId>(random() % 1000));
  }
  request.tokens = std::move(tokens);
  request.prompt_length = length;
  request.max_tokens = max_tokens;
  request.sampling.temperature = seed % 2 == 0 ? 0.0f : 1.0f;
  request.sampling.seed = seed;
  return request;
}

}  // namespace baton
