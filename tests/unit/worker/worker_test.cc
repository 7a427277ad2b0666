#include "common/worker/worker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/engine/kv_room.h"
#include "common/kvcache/block_hash.h"
#include "common/log/log.h"
#include "tests/fakes/engine_harness.h"
#include "tests/fakes/fake_router.h"
#include "tests/fakes/worker_node.h"
#include "tests/support/captured_stderr.h"

namespace baton {
namespace {

namespace pb = worker::v1;

// A request of epoch 1.
Request Numbered(uint64_t id, int32_t length, uint64_t seed, int32_t max_tokens) {
  Request request = MakeRequest(id, length, seed, max_tokens);
  request.epoch = Epoch(1);
  return request;
}

NodeOptions Plain(const FakeRouter& router) {
  NodeOptions options;
  options.router = router.address();
  options.kv.blocks = 64;
  return options;
}

// Room for a request that does not end before the test acts on it.
NodeOptions Roomy(const FakeRouter& router) {
  NodeOptions options = Plain(router);
  options.kv.blocks = 4096;
  options.shape.context_length = 65536;
  return options;
}

Request Endless(uint64_t id) {
  return Numbered(id, 30, 3, 60000);
}

pb::ToWorker Serve(const Request& request) {
  pb::ToWorker message;
  *message.add_dispatches() = MakeDispatch(request, pb::Dispatch::SERVE);
  return message;
}

// A dispatch of kind DECODE whose KV never arrives.
pb::ToWorker Expect(const Request& request) {
  pb::ToWorker message;
  *message.add_dispatches() = MakeDispatch(request, pb::Dispatch::DECODE);
  message.mutable_dispatches(0)->set_session_id(1);
  message.mutable_dispatches(0)->mutable_peer()->set_worker_id("p");
  return message;
}

TEST(Worker, JoinsSayingWhatItIs) {
  FakeRouter router;
  NodeOptions options = Plain(router);
  options.decode = true;
  options.engine.hash_secret = 4711;
  WorkerNode node(options);
  const pb::Join join = router.AwaitJoin("worker");
  EXPECT_FALSE(join.can_prefill());
  EXPECT_TRUE(join.can_decode());
  EXPECT_EQ(join.model(), "fake");
  EXPECT_EQ(join.blocks(), 64);
  EXPECT_EQ(join.vocabulary(), 1000);
  EXPECT_EQ(join.version(), static_cast<uint32_t>(pb::PROTOCOL_VERSION));
  EXPECT_EQ((Hash128{join.secret_probe_high(), join.secret_probe_low()}),
            SecretProbe(4711, BootId(join.boot_id())));
  EXPECT_EQ(join.device(), "cpu");
  EXPECT_EQ(join.kv_layout(), node.worker().executor().kv_layout().ToString());
  EXPECT_EQ(join.kv_address(), node.kv_address());
  router.AwaitHeartbeat("worker",
                        [](const pb::Heartbeat& beat) { return beat.blocks_free() == 64; });
}

// A window and chunks take some of the 64 arena blocks. The rest is for the layer that reads all
// tokens.
TEST(Worker, TellsHowManyTokensASequenceMayHaveBesideItsWindow) {
  FakeRouter router;
  NodeOptions options = Plain(router);
  options.shape.windows = {0, 32};
  options.engine.max_step_tokens = 32;
  const WorkerNode node(options);
  const KvRoom room(options.shape.windows, 16, 64, 32);
  const int64_t blocks = room.max_tokens() / 16;
  EXPECT_GT(blocks, 48);
  EXPECT_EQ(router.AwaitJoin(node.id()).blocks(), blocks);
  router.AwaitHeartbeat(node.id(), [&](const pb::Heartbeat& beat) {
    return beat.blocks_total() == blocks && beat.blocks_free() == blocks;
  });
}

// For operators: in metrics, and in heartbeats for `baton status`.
TEST(Worker, TellsWhatEachCacheGroupHolds) {
  FakeRouter router;
  NodeOptions options = Roomy(router);
  options.shape.windows = {32, 0, 32};
  WorkerNode node(options);
  router.AwaitJoin(node.id());
  // A block of tokens: 16 tokens of K and V with two f32 numbers each in a layer.
  const auto groups = [&](const pb::Heartbeat& beat) {
    std::string text;
    for (const pb::CacheGroup& group : beat.cache_groups()) {
      text += fmt::format("{}{}: {} layers, {} bytes",
                          text.empty() ? "" : "; ",
                          group.name(),
                          group.layers(),
                          group.bytes());
    }
    return text;
  };
  const auto held = [](const pb::Heartbeat& beat, int group) {
    return beat.cache_groups(group).blocks_held();
  };
  const std::string expected = "full: 1 layers, 256 bytes; window of 32: 2 layers, 512 bytes";
  router.AwaitHeartbeat(node.id(), [&](const pb::Heartbeat& beat) {
    return groups(beat) == expected && held(beat, 0) == 0 && held(beat, 1) == 0;
  });
  router.Send(node.id(), Serve(Endless(1)));
  // After 320 tokens, 20 blocks hold all of them, and at most 3 the tokens of a window.
  router.AwaitHeartbeat(node.id(), [&](const pb::Heartbeat& beat) {
    return groups(beat) == expected && held(beat, 0) >= 20 && held(beat, 1) >= 4 &&
           held(beat, 1) <= 6;
  });
  const std::string metrics = node.metrics().Serialize();
  for (const char* name : {"baton_kv_group_layers{group=\"full\"} 1",
                           "baton_kv_group_layers{group=\"window of 32\"} 2",
                           "baton_kv_group_bytes{group=\"full\"} 256",
                           "baton_kv_group_bytes{group=\"window of 32\"} 512",
                           "baton_kv_group_blocks{group=\"window of 32\"} "}) {
    EXPECT_NE(metrics.find(name), std::string::npos) << name << " is not in\n" << metrics;
  }
}

TEST(Worker, WarnsOfAnArenaThatCannotHoldOneContext) {
  for (const int32_t context : {1024, 1025}) {
    FakeRouter router;
    NodeOptions options = Plain(router);  // 64 blocks of 16 tokens
    options.shape.context_length = context;
    testing::internal::CaptureStderr();
    WorkerNode node(options);
    EXPECT_TRUE(FlushLog(std::chrono::seconds(60)));
    const std::string log = testing::internal::GetCapturedStderr();
    const bool warned = log.find("the KV arena holds") != std::string::npos;
    EXPECT_EQ(warned, context == 1025) << log;
    if (warned) {
      EXPECT_THAT(log,
                  ::testing::HasSubstr("the KV arena holds 1024 tokens (64 blocks of 16), less "
                                       "than the context length of 1025"));
    }
  }
}

// Waits up to 60 s until the log has `line`; returns the log so far.
std::string LogWith(const std::string& line, const CapturedStderr& captured) {
  const Time limit = SteadyClock().Now() + std::chrono::seconds(60);
  while (captured.Text().find(line) == std::string::npos && SteadyClock().Now() < limit) {
    EXPECT_TRUE(FlushLog(std::chrono::seconds(60)));
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return captured.Text();
}

TEST(Worker, SaysHowItsStreamToARouterEnded) {
  FakeRouter router;
  const CapturedStderr captured;
  WorkerNode node(Plain(router));
  router.AwaitJoin("worker");
  router.Drop("worker");
  const std::string broken = "lost router " + router.address() + ": UNAVAILABLE: dropped by the";
  EXPECT_THAT(LogWith(broken, captured), ::testing::HasSubstr(broken));
  router.AwaitJoin("worker");
  router.Drop("worker", OkStatus());
  const std::string closed = "router " + router.address() + " closed the stream in order";
  EXPECT_THAT(LogWith(closed, captured), ::testing::HasSubstr(closed));
  router.AwaitJoin("worker");
  pb::ToWorker drain;
  drain.mutable_drain();
  router.Send("worker", drain);
  const std::string left = "left router " + router.address();
  EXPECT_THAT(LogWith(left, captured), ::testing::HasSubstr(left));
}

TEST(Worker, ServesARequestAndShowsItsMetrics) {
  FakeRouter router;
  WorkerNode node(Plain(router));
  router.AwaitJoin("worker");
  EXPECT_TRUE(node.worker().Ready().ok() ||
              node.worker().Ready().code() == StatusCode::kUnavailable);
  Request request = Numbered(1, 50, 3, 20);
  request.samples = 2;
  router.Send("worker", Serve(request));
  const FakeRouter::WorkerReports heard = router.AwaitEnd("worker", 1);
  ASSERT_TRUE(heard.finished.has_value()) << heard.Ending();
  for (int32_t sample = 0; sample < 2; ++sample) {
    EXPECT_EQ(heard.Tokens(sample), node.model().Expected(request, sample));
    int32_t index = 0;
    for (const pb::Token& token : heard.samples.at(sample)) EXPECT_EQ(token.index(), index++);
  }
  const std::string metrics = node.metrics().Serialize();
  for (const char* name : {"baton_worker_sequences_running 0",
                           "baton_worker_sequences_waiting 0",
                           "baton_kv_cache_utilization 0",
                           "baton_kv_block_tokens 16",
                           "baton_kv_blocks 64",
                           "baton_kv_leaked_blocks 0",
                           "baton_kv_quarantined_blocks 0",
                           "baton_worker_info{device=\"cpu\"} 1",
                           "baton_worker_ttft_seconds_count 1",
                           "baton_worker_tpot_seconds_count 1",
                           "baton_worker_queue_seconds_count 1",
                           "baton_worker_prefill_seconds_count 1"}) {
    EXPECT_NE(metrics.find(name), std::string::npos) << name << " is not in\n" << metrics;
  }
}

TEST(Worker, TheEndOfARequestComesWithItsLastTokens) {
  FakeRouter router;
  WorkerNode node(Plain(router));
  router.AwaitJoin("worker");
  for (uint64_t id = 1; id <= 20; ++id) {
    // One token: the prompt fills no block, and so no event of the cache follows.
    router.Send("worker", Serve(Numbered(id, 5, 1, 1)));
    EXPECT_TRUE(router.AwaitEnd("worker", id).finished_with_token) << id;
  }
}

TEST(Worker, RefusesBadRequestsByName) {
  FakeRouter router;
  WorkerNode node(Plain(router));
  router.AwaitJoin("worker");
  Request request = Numbered(1, 10, 3, 20);
  EditTokens(request, [](std::vector<TokenId>& tokens) { tokens[4] = 1000; });
  router.Send("worker", Serve(request));
  const FakeRouter::WorkerReports heard = router.AwaitEnd("worker", 1);
  EXPECT_EQ(heard.Failure().code(), static_cast<int>(StatusCode::kInvalidArgument));
  EXPECT_FALSE(heard.Failure().retryable());
  pb::ToWorker prefill;
  *prefill.add_dispatches() = MakeDispatch(Numbered(2, 10, 3, 20), pb::Dispatch::PREFILL);
  prefill.mutable_dispatches(0)->set_session_id(1);
  prefill.mutable_dispatches(0)->mutable_peer()->set_worker_id("d");
  prefill.mutable_dispatches(0)->mutable_peer()->set_kv_address("127.0.0.1:9");
  router.Send("worker", prefill);
  EXPECT_NE(router.AwaitEnd("worker", 2).Failure().message().find("cannot prefill"),
            std::string::npos);
  pb::ToWorker redirect;
  redirect.add_redirects()->set_request_id(3);
  redirect.mutable_redirects(0)->set_epoch(1);
  router.Send("worker", redirect);
  EXPECT_TRUE(router.AwaitEnd("worker", 3).failed.has_value());
}

TEST(Worker, LostRouterEndsItsRequestsAndIsJoinedAgain) {
  FakeRouter router;
  WorkerNode node(Roomy(router));
  router.AwaitJoin("worker");
  router.Send("worker", Serve(Endless(1)));
  router.Await("worker", 1, 1, [](const FakeRouter::WorkerReports& heard) {
    return !heard.samples.empty();
  });
  router.Drop("worker");
  node.ExpectNothingHeld();
  router.AwaitJoin("worker");
  router.Send("worker", Serve(Numbered(2, 30, 4, 5)));
  EXPECT_TRUE(router.AwaitEnd("worker", 2).finished.has_value());
}

TEST(Worker, CancelEndsARequest) {
  FakeRouter router;
  WorkerNode node(Roomy(router));
  router.AwaitJoin("worker");
  router.Send("worker", Serve(Endless(1)));
  pb::ToWorker cancel;
  cancel.add_cancels()->set_request_id(1);
  cancel.mutable_cancels(0)->set_epoch(1);
  router.Send("worker", cancel);
  const FakeRouter::WorkerReports heard = router.AwaitEnd("worker", 1);
  EXPECT_EQ(heard.Failure().code(), static_cast<int>(StatusCode::kCancelled));
  node.ExpectNothingHeld();
}

TEST(Worker, CancelOfACompleteRequestCountsItAsDone) {
  FakeRouter router;
  WorkerNode node(Roomy(router));
  router.AwaitJoin("worker");
  const auto begun = [](const FakeRouter::WorkerReports& heard) {
    return heard.samples.contains(0);
  };
  for (const bool complete : {true, false}) {
    const RequestId id(complete ? 1 : 2);
    router.Send("worker", Serve(Endless(id.value())));
    router.Await("worker", id.value(), 1, begun);
    pb::ToWorker cancel;
    cancel.add_cancels()->set_request_id(id.value());
    cancel.mutable_cancels(0)->set_epoch(1);
    cancel.mutable_cancels(0)->set_complete(complete);
    router.Send("worker", cancel);
    router.AwaitEnd("worker", id.value());
  }
  const std::string metrics = node.metrics().Serialize();
  for (const char* line : {"baton_worker_requests_total{outcome=\"done\"} 1",
                           "baton_worker_requests_total{outcome=\"cancelled\"} 1",
                           "baton_worker_ttft_seconds_count 1",
                           "baton_worker_queue_seconds_count 0"}) {
    EXPECT_THAT(metrics, testing::HasSubstr(line));
  }
  node.ExpectNothingHeld();
}

TEST(Worker, CancelOfOneSampleLetsTheOthersFinish) {
  FakeRouter router;
  WorkerNode node(Roomy(router));
  router.AwaitJoin("worker");
  Request request = Numbered(1, 30, 3, 200);
  request.samples = 2;
  node.model().AllowRuns(20);
  router.Send("worker", Serve(request));
  const auto begun = [](const FakeRouter::WorkerReports& heard) {
    return heard.samples.contains(0);
  };
  router.Await("worker", 1, 1, begun);
  pb::ToWorker cancel;
  cancel.add_cancels()->set_request_id(1);
  cancel.mutable_cancels(0)->set_epoch(1);
  cancel.mutable_cancels(0)->set_sample(0);
  router.Send("worker", cancel);
  // The stream keeps the order: when the drain has arrived, the cancel has arrived too.
  pb::ToWorker drain;
  drain.mutable_drain();
  router.Send("worker", drain);
  router.AwaitHeartbeat("worker", [](const pb::Heartbeat& beat) { return beat.draining(); });
  node.model().AllowRuns(INT64_MAX);
  const FakeRouter::WorkerReports heard = router.AwaitEnd("worker", 1);
  ASSERT_TRUE(heard.finished.has_value()) << heard.Ending();
  EXPECT_LT(heard.Tokens(0).size(), 200u) << "computed to the end";
  EXPECT_EQ(heard.Tokens(1), node.model().Expected(request, 1));
  node.ExpectNothingHeld();
}

TEST(Worker, DrainFinishesWhatRunsAndRefusesMore) {
  FakeRouter router;
  NodeOptions options = Plain(router);
  options.decode = true;
  WorkerNode node(options);
  router.AwaitJoin("worker");
  router.Send("worker", Expect(Numbered(1, 30, 3, 200)));
  router.AwaitHeartbeat("worker",
                        [](const pb::Heartbeat& beat) { return beat.awaiting_kv() == 1; });
  pb::ToWorker drain;
  drain.mutable_drain();
  router.Send("worker", drain);
  router.AwaitHeartbeat("worker", [](const pb::Heartbeat& beat) { return beat.draining(); });
  EXPECT_TRUE(router.Draining("worker"));
  router.Send("worker", Serve(Numbered(2, 30, 3, 5)));
  const FakeRouter::WorkerReports late = router.AwaitEnd("worker", 2);
  EXPECT_TRUE(late.Failure().retryable());
  pb::ToWorker cancel;
  cancel.add_cancels()->set_request_id(1);
  cancel.mutable_cancels(0)->set_epoch(1);
  router.Send("worker", cancel);
  EXPECT_TRUE(node.worker().Drain(std::chrono::seconds(60)));
  EXPECT_TRUE(router.AwaitEnd("worker", 1).failed.has_value());
  router.AwaitLeft("worker");
}

TEST(Worker, ALostDeviceEndsItsRequestsAndItsLinks) {
  FakeRouter router;
  NodeOptions options = Roomy(router);
  options.decode = true;
  WorkerNode node(options);
  router.AwaitJoin("worker");
  EXPECT_TRUE(node.worker().Failure().ok());
  router.Send("worker", Serve(Endless(1)));
  router.Send("worker", Expect(Numbered(2, 30, 3, 200)));
  router.AwaitHeartbeat("worker", [](const pb::Heartbeat& beat) {
    return beat.running() == 1 && beat.awaiting_kv() == 1;
  });
  node.model().LoseDevice();
  for (const uint64_t request : {1, 2}) {
    const FakeRouter::WorkerReports heard = router.AwaitEnd("worker", request);
    EXPECT_TRUE(heard.Failure().retryable()) << heard.Failure().message();
  }
  router.AwaitLeft("worker");
  EXPECT_EQ(node.worker().Failure().code(), StatusCode::kUnavailable);
  EXPECT_EQ(node.worker().Ready(), node.worker().Failure());
  EXPECT_NE(Message(node.worker().Failure()).find("the fake device is lost"),
            std::string_view::npos);
}

TEST(Worker, ServesTwoRoutersAtOnce) {
  FakeRouter first;
  FakeRouter second;
  MetricsRegistry metrics;
  SteadyClock clock;
  FakeExecutor executor({.blocks = 256});
  WorkerOptions options;
  options.id = WorkerId("worker");
  options.routers.targets = {first.address(), "dns:///" + second.address()};
  auto worker = Worker::Create(std::move(options), executor, metrics, clock);
  ASSERT_TRUE(worker.ok());
  ASSERT_TRUE((*worker)->Start().ok());
  first.AwaitJoin("worker");
  second.AwaitJoin("worker");
  first.Send("worker", Serve(Numbered(1, 30, 3, 50)));
  second.Send("worker", Serve(Numbered(2, 30, 4, 50)));
  EXPECT_EQ(first.AwaitEnd("worker", 1).Tokens(0).size(), 50u);
  EXPECT_EQ(second.AwaitEnd("worker", 2).Tokens(0).size(), 50u);
  EXPECT_TRUE(first.Get("worker", 2).samples.empty());
  EXPECT_TRUE(second.Get("worker", 1).samples.empty());
}

TEST(Worker, NoRouterIsAnErrorOnlyWhenThereCanBeNone) {
  for (const std::vector<std::string>& targets : {std::vector<std::string>{}, {"nowhere"}}) {
    MetricsRegistry metrics;
    SteadyClock clock;
    FakeExecutor executor({.blocks = 4});
    WorkerOptions options;
    options.routers.targets = targets;
    auto worker = Worker::Create(std::move(options), executor, metrics, clock);
    ASSERT_TRUE(worker.ok());
    const Status started = (*worker)->Start();
    EXPECT_EQ(started.code(), StatusCode::kInvalidArgument);
    EXPECT_NE(Message(started).find("routers"), std::string::npos) << started;
    EXPECT_EQ((*worker)->Ready().code(), StatusCode::kUnavailable);
  }
}

}  // namespace
}  // namespace baton
