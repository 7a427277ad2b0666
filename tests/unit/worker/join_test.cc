#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/rpc/rpc_server.h"
#include "common/worker/join_problems.h"
#include "proto/kv.grpc.pb.h"
#include "tests/fakes/engine_harness.h"
#include "tests/fakes/fake_router.h"
#include "tests/fakes/worker_node.h"

// What a worker reports when it cannot join a router.
namespace baton {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr Duration kLong = std::chrono::seconds(60);
constexpr Time kStart{std::chrono::hours(1)};

Status Refusal(const char* why) {
  return Status(StatusCode::kFailedPrecondition, why);
}

TEST(JoinProblems, AreLoggedAtOnceAndThenWithGrowingPauses) {
  JoinProblems problems;
  EXPECT_EQ(problems.ToString(), "");
  int lines = 0;
  Time last{};
  Duration pause{};
  for (Time now = kStart; now < kStart + std::chrono::hours(1); now += std::chrono::seconds(3)) {
    if (!problems.Note("router:1", Refusal("another model"), now)) continue;
    if (++lines > 2) {
      EXPECT_GE(now - last, std::min<Duration>(JoinProblems::kLongestPause, pause));
    }
    pause = now - last;
    last = now;
  }
  EXPECT_GE(lines, 8);
  EXPECT_LE(lines, 15);
  EXPECT_EQ(problems.ToString(), "router:1: another model");
}

TEST(JoinProblems, ANewReasonAndANewRouterAreNews) {
  JoinProblems problems;
  EXPECT_TRUE(problems.Note("a:1", Refusal("x"), kStart));
  EXPECT_FALSE(problems.Note("a:1", Refusal("x"), kStart));
  EXPECT_TRUE(problems.Note("a:1", Refusal("y"), kStart));
  EXPECT_TRUE(problems.Note("b:1", Refusal("y"), kStart));
  EXPECT_EQ(problems.ToString(), "a:1: y; b:1: y");
  problems.Forget("a:1");
  EXPECT_EQ(problems.ToString(), "b:1: y");
  EXPECT_TRUE(problems.Note("a:1", Refusal("y"), kStart));
}

// The message of Ready() once it contains `words`, or the last one after kLong.
std::string AwaitReadiness(const Worker& worker, const std::string& words) {
  const SteadyClock clock;
  const Time deadline = clock.Now() + kLong;
  std::string said;
  while (clock.Now() < deadline) {
    said = std::string(Message(worker.Ready()));
    if (said.find(words) != std::string::npos) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return said;
}

NodeOptions Joining(const std::string& router) {
  NodeOptions options;
  options.router = router;
  options.kv.blocks = 16;
  return options;
}

TEST(WorkerJoin, AnAddressWhereNobodyListensIsNamed) {
  std::string gone;
  {
    FakeRouter router;
    gone = router.address();
  }
  WorkerNode node(Joining(gone));
  EXPECT_THAT(AwaitReadiness(node.worker(), "connect"),
              AllOf(HasSubstr("no router is joined: " + gone), HasSubstr("connect")));
}

TEST(WorkerJoin, ANameThatNobodyKnowsIsNamed) {
  WorkerNode node(Joining("dns:///no-such-name.invalid:7070"));
  EXPECT_THAT(AwaitReadiness(node.worker(), "resolved"),
              HasSubstr("'no-such-name.invalid' of 'dns:///no-such-name.invalid:7070'"));
}

TEST(WorkerJoin, AnotherPortOfARouterIsToldFromItsPortForWorkers) {
  kv::v1::KvControl::Service other;
  grpc::Service* services[] = {&other};
  const auto server = RpcServer::Start("127.0.0.1:0", services);
  ASSERT_TRUE(server.ok()) << server.status();
  WorkerNode node(Joining((*server)->address()));
  EXPECT_THAT(AwaitReadiness(node.worker(), "worker_listen"),
              HasSubstr((*server)->address() + ": no router takes workers there"));
}

TEST(WorkerJoin, WhatTheRouterSaysIsRepeatedUntilItLetsTheWorkerIn) {
  FakeRouter router;
  router.RefuseJoins(Refusal("the vocabularies differ"));
  WorkerNode node(Joining(router.address()));
  EXPECT_THAT(AwaitReadiness(node.worker(), "differ"),
              HasSubstr(router.address() + ": the vocabularies differ"));
  router.RefuseJoins(Status(StatusCode::kAlreadyExists, "the name is taken"));
  EXPECT_THAT(AwaitReadiness(node.worker(), "taken"), Not(HasSubstr("differ")));
  router.RefuseJoins(OkStatus());
  router.AwaitJoin("worker");
  EXPECT_EQ(AwaitReadiness(node.worker(), ""), std::string(Message(node.worker().Ready())));
  router.AwaitHeartbeat("worker",
                        [seen = 0](const worker::v1::Heartbeat&) mutable { return ++seen > 2; });
  EXPECT_EQ(node.worker().Ready(), OkStatus());
}

// ---- traffic in both directions

// A role that does nothing; it only returns its traffic.
class IdleRole final : public WorkerRole {
 public:
  explicit IdleRole(std::map<WorkerId, PeerTraffic> traffic,
                    std::map<WorkerId, PeerTransferStats> transfers = {})
      : traffic_(std::move(traffic)), transfers_(std::move(transfers)) {}
  Status OnDispatch(RouterKey, DispatchCommand) override { return OkStatus(); }
  void OnRedirect(RouterKey, const RedirectCommand&) override {}
  void OnCancel(RouterKey, RequestId, Epoch) override {}
  void OnRouterLost(RouterKey) override {}
  void OnLeaving(const std::string&) override {}
  void OnPromptStarted(RequestId, Epoch) override {}
  void OnKvLayers(const KvChunk&, int32_t) override {}
  void OnKvChunk(const KvChunk&) override {}
  void OnKvReserved(const KvReservation&) override {}
  void OnToken(const TokenOutput&) override {}
  bool OnEnded(RequestId, Epoch, const Status&) override { return true; }
  void OnTick(Time) override {}
  size_t open_handoffs() const override { return 0; }
  const std::map<WorkerId, PeerTraffic>& traffic() const override { return traffic_; }
  KvTransferStats transfers() const override {
    KvTransferStats stats;
    stats.by_peer = transfers_;
    stats.rejected_messages = transfers_.size();
    return stats;
  }
  void Stop() override {}

 private:
  const std::map<WorkerId, PeerTraffic> traffic_;
  const std::map<WorkerId, PeerTransferStats> transfers_;
};

TEST(WorkerTraffic, WithAPeerThatDoesBothIsAdded) {
  FakeRouter router;
  MetricsRegistry metrics;
  SteadyClock clock;
  FakeExecutor executor({.blocks = 256});
  WorkerOptions options;
  options.id = WorkerId("both");
  options.routers.targets = {router.address()};
  auto worker = Worker::Create(std::move(options), executor, metrics, clock);
  ASSERT_TRUE(worker.ok()) << worker.status();
  (*worker)->SetRole(
      RequestKind::kPrefill,
      std::make_unique<IdleRole>(
          std::map<WorkerId, PeerTraffic>{{WorkerId("peer"), {"shm", 1000, 3, 0}}},
          std::map<WorkerId, PeerTransferStats>{{WorkerId("peer"),
                                                 {.transport = "shm",
                                                  .not_taken = "cuda_ipc: there is none",
                                                  .writes = 20,
                                                  .resent_blocks = 2,
                                                  .fences = 1,
                                                  .open = 4,
                                                  .bytes_per_second = 2e9,
                                                  .oldest = std::chrono::milliseconds(1500)}}}),
      "");
  (*worker)->SetRole(RequestKind::kDecode,
                     std::make_unique<IdleRole>(
                         std::map<WorkerId, PeerTraffic>{{WorkerId("peer"), {"shm", 500, 4, 0}},
                                                         {WorkerId("other"), {"tcp", 7, 1, 0}}},
                         std::map<WorkerId, PeerTransferStats>{{WorkerId("peer"),
                                                                {.transport = "shm",
                                                                 .not_taken = "",
                                                                 .checksum_errors = 3,
                                                                 .open = 1,
                                                                 .quarantined_blocks = 5}}}),
                     "127.0.0.1:1");
  ASSERT_TRUE((*worker)->Start().ok());
  router.AwaitJoin("both");
  const worker::v1::Heartbeat beat = router.LastHeartbeat("both");
  ASSERT_EQ(beat.peers_size(), 2);
  EXPECT_EQ(beat.peers(0).peer(), "other");
  EXPECT_EQ(beat.peers(0).bytes(), 7u);
  EXPECT_EQ(beat.peers(1).peer(), "peer");
  EXPECT_EQ(beat.peers(1).bytes(), 1500u);
  EXPECT_EQ(beat.peers(1).transfers(), 7u);
  EXPECT_EQ(beat.peers(1).bytes_per_second(), 2e9);
  EXPECT_EQ(beat.peers(1).not_taken(), "cuda_ipc: there is none");
  EXPECT_EQ(beat.peers(1).writes(), 20u);
  EXPECT_EQ(beat.peers(1).resent_blocks(), 2u);
  EXPECT_EQ(beat.peers(1).checksum_errors(), 3u);
  EXPECT_EQ(beat.peers(1).fences(), 1u);
  EXPECT_EQ(beat.peers(1).open(), 5u);
  EXPECT_EQ(beat.peers(1).quarantined_blocks(), 5u);
  EXPECT_EQ(beat.peers(1).oldest_ms(), 1500);
  const std::string scraped = metrics.Serialize();
  for (const char* line : {"baton_kv_peer_transport{not_taken=\"cuda_ipc: there is "
                           "none\",peer=\"peer\",transport=\"shm\"} 1",
                           "baton_kv_peer_handoffs{peer=\"peer\"} 5",
                           "baton_kv_peer_bytes_total{peer=\"peer\"} 1500",
                           "baton_kv_peer_checksum_errors_total{peer=\"peer\"} 3",
                           "baton_kv_peer_quarantined_blocks{peer=\"peer\"} 5",
                           "baton_kv_peer_oldest_handoff_seconds{peer=\"peer\"} 1.5",
                           "baton_kv_rejected_messages_total 2\n"}) {
    EXPECT_NE(scraped.find(line), std::string::npos) << line << " is not in\n" << scraped;
  }
}

// ---- a drain by a router

worker::v1::ToWorker Drain(bool keep) {
  worker::v1::ToWorker message;
  message.mutable_drain()->set_keep(keep);
  return message;
}

TEST(WorkerDrain, OfARouterEndsTheProcessWhenNothingIsLeft) {
  FakeRouter router;
  NodeOptions options = Joining(router.address());
  options.decode = true;
  WorkerNode node(options);
  router.AwaitJoin("worker");
  Request request = MakeRequest(1, 30, 3, 200);
  request.epoch = Epoch(1);
  worker::v1::ToWorker expect;  // a dispatch whose KV never arrives
  *expect.add_dispatches() = MakeDispatch(request, worker::v1::Dispatch::DECODE);
  expect.mutable_dispatches(0)->set_session_id(1);
  expect.mutable_dispatches(0)->mutable_peer()->set_worker_id("p");
  router.Send("worker", expect);
  router.Send("worker", Drain(false));
  router.AwaitHeartbeat("worker", [](const worker::v1::Heartbeat& beat) {
    return beat.draining() && beat.awaiting_kv() == 1;
  });
  EXPECT_FALSE(node.worker().Finished());
  EXPECT_THAT(std::string(Message(node.worker().Ready())), HasSubstr("drain"));
  worker::v1::ToWorker cancel;
  cancel.add_cancels()->set_request_id(1);
  cancel.mutable_cancels(0)->set_epoch(1);
  router.Send("worker", cancel);
  router.AwaitLeft("worker");
  EXPECT_TRUE(node.worker().Finished());
}

TEST(WorkerDrain, MayKeepTheProcess) {
  FakeRouter router;
  WorkerNode node(Joining(router.address()));
  router.AwaitJoin("worker");
  router.Send("worker", Drain(true));
  router.AwaitLeft("worker");
  EXPECT_FALSE(node.worker().Finished());
  EXPECT_TRUE(node.worker().Drain(kLong));  // as SIGTERM does; the worker is already drained
  EXPECT_FALSE(node.worker().Finished());
}

}  // namespace
}  // namespace baton
