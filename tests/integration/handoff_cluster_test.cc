#include <random>
#include <set>
#include <thread>

#include <gtest/gtest.h>

#include "common/rpc/channel.h"
#include "common/worker/kv_control_wire.h"
#include "proto/kv.grpc.pb.h"
#include "tests/fakes/engine_harness.h"
#include "tests/fakes/fake_router.h"
#include "tests/fakes/worker_node.h"
#include "tests/support/received.h"

// Two prefill and two decode workers with real engines, hand-offs and gRPC, and a fake router that
// sends the messages of the test. The model is fake: its tokens depend on every visible byte of KV.
namespace baton {
namespace {

namespace pb = worker::v1;

// A request of epoch 1.
Request Numbered(uint64_t id, int32_t length, uint64_t seed, int32_t max_tokens) {
  Request request = MakeRequest(id, length, seed, max_tokens);
  request.epoch = Epoch(1);
  return request;
}

struct Plan {
  WorkerNode* prefill;
  WorkerNode* decode;
  uint64_t session;
};

class HandoffCluster : public ::testing::TestWithParam<const char*> {
 protected:
  void Start(const NodeOptions& shared, Duration wait = std::chrono::seconds(30)) {
    for (const char* id : {"p1", "p2", "d1", "d2"}) {
      NodeOptions options = shared;
      options.id = id;
      options.router = router_.address();
      (id[0] == 'p' ? options.prefill : options.decode) = true;
      options.transport = GetParam();
      options.match_wait = options.redirect_wait = wait;
      nodes_.push_back(std::make_unique<WorkerNode>(options));
    }
    for (const auto& node : nodes_) router_.AwaitJoin(node->id());
  }

  // Stops all workers and waits until they have left, so that new workers can join with their
  // names.
  void StopAll() {
    for (const auto& node : nodes_) node->Stop();
    for (const auto& node : nodes_) router_.AwaitLeft(node->id());
    nodes_.clear();
  }

  void TearDown() override {
    for (const auto& node : nodes_) {
      if (node == nullptr) continue;
      node->ExpectNothingHeld();
      node->Stop();
    }
  }

  WorkerNode& P(int i) { return *nodes_[i]; }
  WorkerNode& D(int i) { return *nodes_[2 + i]; }

  pb::ToWorker PrefillOrder(const Request& request, const Plan& plan) {
    pb::ToWorker message;
    *message.add_dispatches() = MakeDispatch(request, pb::Dispatch::PREFILL);
    message.mutable_dispatches(0)->set_session_id(plan.session);
    SetPeer(*plan.decode, message.mutable_dispatches(0)->mutable_peer());
    return message;
  }

  pb::ToWorker DecodeOrder(const Request& request, const Plan& plan) {
    pb::ToWorker message;
    *message.add_dispatches() = MakeDispatch(request, pb::Dispatch::DECODE);
    message.mutable_dispatches(0)->set_session_id(plan.session);
    SetPeer(*plan.prefill, message.mutable_dispatches(0)->mutable_peer());
    return message;
  }

  static void SetPeer(WorkerNode& node, pb::Peer* peer) {
    peer->set_worker_id(node.id());
    peer->set_boot_id(node.boot());
    peer->set_kv_address(node.kv_address());
  }

  void Dispatch(const Request& request, const Plan& plan) {
    router_.Send(plan.decode->id(), DecodeOrder(request, plan));
    router_.Send(plan.prefill->id(), PrefillOrder(request, plan));
  }

  void Cancel(WorkerNode& node, const Request& request) {
    pb::ToWorker cancel;
    cancel.add_cancels()->set_request_id(request.id.value());
    cancel.mutable_cancels(0)->set_epoch(request.epoch.value());
    router_.Send(node.id(), cancel);
  }

  // Checks that the tokens of both workers together are the model's tokens.
  void ExpectTokens(const Request& request, const Plan& plan) {
    const uint64_t id = request.id.value();
    const uint32_t epoch = request.epoch.value();
    const FakeRouter::WorkerReports first = router_.AwaitEnd(plan.prefill->id(), id, epoch);
    ASSERT_TRUE(first.finished.has_value()) << first.Ending();
    bool goes_on = false;
    for (const auto& [sample, tokens] : first.samples) {
      ASSERT_EQ(tokens.size(), 1u);
      goes_on = goes_on || tokens[0].finish() == static_cast<int>(FinishReason::kHandedOff);
    }
    FakeRouter::WorkerReports rest;
    if (goes_on) {
      rest = router_.AwaitEnd(plan.decode->id(), id, epoch);
      ASSERT_TRUE(rest.finished.has_value()) << rest.Ending();
    }
    for (int32_t sample = 0; sample < request.samples; ++sample) {
      std::vector<TokenId> all = first.Tokens(sample);
      const std::vector<TokenId> more = rest.Tokens(sample);
      all.insert(all.end(), more.begin(), more.end());
      EXPECT_EQ(all, P(0).model().Expected(request, sample)) << "request " << id;
    }
  }

  FakeRouter router_;
  std::vector<std::unique_ptr<WorkerNode>> nodes_;
};

NodeOptions Blocks(int32_t blocks, int32_t step_tokens = 512) {
  NodeOptions options;
  options.kv.blocks = blocks;
  options.engine.max_step_tokens = step_tokens;
  return options;
}

TEST_P(HandoffCluster, OnePrompt) {
  Start(Blocks(64));
  const Request request = Numbered(1, 100, 5, 30);
  const Plan plan{&P(0), &D(0), 11};
  Dispatch(request, plan);
  ExpectTokens(request, plan);
  const FakeRouter::WorkerReports heard = router_.Get("d1", 1);
  ASSERT_EQ(heard.handoffs.size(), 1u);
  EXPECT_EQ(heard.handoffs.at(0).outcome(), pb::Handoff::COMMITTED);
  EXPECT_EQ(heard.handoffs.at(0).transport(), GetParam());
  EXPECT_EQ(heard.handoffs.at(0).reused_blocks(), 0);
  EXPECT_GT(heard.handoffs.at(0).bytes(), 0u);
}

TEST_P(HandoffCluster, EveryChunkSizeManyRequestsOverAllPairs) {
  for (const int32_t step_tokens : {1, 7, 16, 33, 512}) {
    StopAll();
    Start(Blocks(256, step_tokens));
    std::vector<std::pair<Request, Plan>> all;
    for (uint64_t i = 1; i <= 16; ++i) {
      const uint64_t id = static_cast<uint64_t>(step_tokens) * 100 + i;
      Request request = Numbered(id, static_cast<int32_t>(1 + i * 13 % 150), id, 12);
      request.sampling.temperature = id % 2 == 0 ? 0.0f : 1.0f;
      request.sampling.seed = id;
      request.samples = i % 5 == 0 && step_tokens > 2 ? 3 : 1;
      all.emplace_back(request, Plan{&P(id % 2), &D(id / 2 % 2), 1000 + id});
    }
    for (const auto& [request, plan] : all) Dispatch(request, plan);
    for (const auto& [request, plan] : all) ExpectTokens(request, plan);
    for (const auto& node : nodes_) node->ExpectNothingHeld();
  }
}

TEST_P(HandoffCluster, PrefixHitsMoveLess) {
  Start(Blocks(128));
  Request request = Numbered(1, 160, 5, 8);
  Dispatch(request, {&P(0), &D(0), 1});
  ExpectTokens(request, {&P(0), &D(0), 1});
  const uint64_t bytes = router_.Get("d1", 1).handoffs.at(0).bytes();
  request.id = RequestId(2);
  // The same prefix with another end.
  EditTokens(request, [](std::vector<TokenId>& tokens) { tokens.resize(150); });
  request.prompt_length = 150;
  Dispatch(request, {&P(0), &D(0), 2});
  ExpectTokens(request, {&P(0), &D(0), 2});
  const pb::Handoff again = router_.Get("d1", 2).handoffs.at(0);
  EXPECT_GT(again.reused_blocks(), 5);
  EXPECT_LT(again.bytes(), bytes / 2);
}

TEST_P(HandoffCluster, PreemptionChangesNoToken) {
  Start(Blocks(24, 64));
  std::vector<Request> requests;
  for (uint64_t id = 1; id <= 8; ++id) {
    requests.push_back(Numbered(id, 60, id, 60));
    Dispatch(requests.back(), {&P(0), &D(0), id});
  }
  for (const Request& request : requests) {
    ExpectTokens(request, {&P(0), &D(0), request.id.value()});
  }
  EXPECT_GT(D(0).worker().engine().Stats().preemptions, 0);
}

TEST_P(HandoffCluster, OfferBeforeDispatchAndDispatchBeforeOffer) {
  Start(Blocks(64));
  const Request early = Numbered(1, 90, 5, 10);
  const Plan plan{&P(0), &D(0), 1};
  router_.Send("p1", PrefillOrder(early, plan));
  router_.AwaitEnd("p1", 1);  // prefilled, offered and sealed before decode knows the request
  router_.Send("d1", DecodeOrder(early, plan));
  ExpectTokens(early, plan);
  const Request late = Numbered(2, 90, 6, 10);
  router_.Send("d1", DecodeOrder(late, {&P(0), &D(0), 2}));
  router_.AwaitHeartbeat("d1", [](const pb::Heartbeat& beat) { return beat.awaiting_kv() == 1; });
  router_.Send("p1", PrefillOrder(late, {&P(0), &D(0), 2}));
  ExpectTokens(late, {&P(0), &D(0), 2});
}

TEST_P(HandoffCluster, FirstTokenMayBeTheLast) {
  Start(Blocks(64));
  const Request request = Numbered(1, 70, 5, 1);
  Dispatch(request, {&P(0), &D(0), 1});
  ExpectTokens(request, {&P(0), &D(0), 1});
  EXPECT_EQ(router_.Get("p1", 1).samples.at(0).at(0).finish(),
            static_cast<int>(FinishReason::kLength));
  Cancel(D(0), request);  // as a router does when it has all tokens
}

TEST_P(HandoffCluster, RefusedHandoffGoesToAnotherWorker) {
  Start(Blocks(64));
  Request request = Numbered(1, 100, 5, 20);
  // d1 received a request with another prompt length, so it refuses the offer.
  Request other = request;
  EditTokens(other, [](std::vector<TokenId>& tokens) { tokens.resize(50); });
  other.prompt_length = 50;
  router_.Send("d1", DecodeOrder(other, {&P(0), &D(0), 1}));
  router_.AwaitHeartbeat("d1", [](const pb::Heartbeat& beat) { return beat.awaiting_kv() == 1; });
  router_.Send("p1", PrefillOrder(request, {&P(0), &D(0), 1}));
  const FakeRouter::WorkerReports refused = router_.Await(
      "p1", 1, 1, [](const FakeRouter::WorkerReports& heard) { return !heard.handoffs.empty(); });
  EXPECT_EQ(refused.handoffs.at(0).outcome(), pb::Handoff::REFUSED);
  Cancel(D(0), request);
  const Plan second{&P(0), &D(1), 2};
  router_.Send("d2", DecodeOrder(request, second));
  pb::ToWorker redirect;
  redirect.add_redirects()->set_request_id(1);
  redirect.mutable_redirects(0)->set_epoch(1);
  redirect.mutable_redirects(0)->set_session_id(2);
  redirect.mutable_redirects(0)->set_decode_epoch(1);
  SetPeer(D(1), redirect.mutable_redirects(0)->mutable_peer());
  router_.Send("p1", redirect);
  ExpectTokens(request, second);
}

TEST_P(HandoffCluster, UnreachableDecodeWorkerIsARefusal) {
  Start(Blocks(64), std::chrono::milliseconds(200));
  const Request request = Numbered(1, 100, 5, 20);
  pb::ToWorker order = PrefillOrder(request, {&P(0), &D(0), 1});
  order.mutable_dispatches(0)->mutable_peer()->set_worker_id("ghost");
  order.mutable_dispatches(0)->mutable_peer()->set_kv_address("127.0.0.1:1");
  router_.Send("p1", order);
  // No redirect arrives: the hand-off fails, and TearDown checks that nothing is still held.
  const FakeRouter::WorkerReports heard = router_.Await(
      "p1", 1, 1, [](const FakeRouter::WorkerReports& h) { return h.handoffs.size() == 2; });
  EXPECT_EQ(heard.handoffs.at(0).outcome(), pb::Handoff::REFUSED);
  EXPECT_EQ(heard.handoffs.at(1).outcome(), pb::Handoff::FAILED);
}

TEST_P(HandoffCluster, MissingHalvesAreGivenUp) {
  Start(Blocks(64), std::chrono::milliseconds(200));
  const Request lonely = Numbered(1, 100, 5, 20);
  router_.Send("d1", DecodeOrder(lonely, {&P(0), &D(0), 1}));
  const FakeRouter::WorkerReports decode = router_.AwaitEnd("d1", 1);
  EXPECT_TRUE(decode.Failure().retryable());
  const Request orphan = Numbered(2, 100, 5, 20);
  router_.Send("p1", PrefillOrder(orphan, {&P(0), &D(0), 2}));
  const FakeRouter::WorkerReports prefill = router_.Await(
      "p1", 2, 1, [](const FakeRouter::WorkerReports& h) { return h.handoffs.size() == 2; });
  EXPECT_EQ(prefill.handoffs.at(0).outcome(), pb::Handoff::REFUSED);
  EXPECT_EQ(prefill.handoffs.at(1).outcome(), pb::Handoff::FAILED);
}

TEST_P(HandoffCluster, CancelAtAnyPointLeavesNothing) {
  // A decode worker that hears of no cancel gives up a request whose prefill was cancelled before
  // its offer. The limit lets a request that nobody cancels be served meanwhile.
  Start(Blocks(96, 16), std::chrono::seconds(1));
  std::mt19937_64 random(20261121);
  for (uint64_t round = 0; round < 6; ++round) {
    std::vector<std::pair<Request, Plan>> all;
    for (uint64_t i = 0; i < 8; ++i) {
      const uint64_t id = round * 100 + i + 1;
      const Request request =
          Numbered(id, static_cast<int32_t>(random() % 200 + 1), random() % 5, 40);
      const Plan plan{&P(random() % 2), &D(random() % 2), id};
      Dispatch(request, plan);
      all.emplace_back(request, plan);
    }
    for (const auto& [request, plan] : all) {
      if (random() % 4 == 0) continue;  // a quarter of the requests is not cancelled
      const size_t wait = random() % 12;
      if (wait < 10) {  // cancel only after some progress
        router_.Await(
            plan.decode->id(), request.id.value(), 1, [&](const FakeRouter::WorkerReports& heard) {
              return heard.ended() || heard.Tokens(0).size() >= wait || wait < 4;
            });
      }
      Cancel(*plan.prefill, request);
      // A decode worker without a cancel from the router learns of it from the prefill worker. A
      // decode worker with one may still learn of it from the prefill worker first.
      if (random() % 3 > 0) Cancel(*plan.decode, request);
    }
    for (const auto& [request, plan] : all) {
      // A worker may learn of the cancel from its peer before it does from the router.
      for (const WorkerNode* node : {plan.prefill, plan.decode}) {
        router_.Await(
            node->id(), request.id.value(), 1, [](const FakeRouter::WorkerReports& heard) {
              return heard.over();
            });
      }
    }
    for (const auto& node : nodes_) node->ExpectNothingHeld();
  }
}

TEST_P(HandoffCluster, LosingAWorkerHarmsNoOther) {
  Start(Blocks(96, 8));
  for (uint64_t id = 1; id <= 12; ++id) {
    Dispatch(Numbered(id, 150, id, 100), {&P(id % 2), &D(id / 2 % 2), id});
  }
  router_.Await("d1", 4, 1, [](const FakeRouter::WorkerReports& heard) {
    return heard.Tokens(0).size() > 3;
  });
  D(0).Stop();  // at this time its requests are in all states
  for (uint64_t id = 1; id <= 12; ++id) {
    const Plan plan{&P(id % 2), &D(id / 2 % 2), id};
    if (plan.decode == &D(1)) {
      ExpectTokens(Numbered(id, 150, id, 100), plan);
    } else {
      Cancel(*plan.prefill, Numbered(id, 150, id, 100));
    }
  }
  nodes_[2] = nullptr;
  P(0).ExpectNothingHeld();
  P(1).ExpectNothingHeld();
  P(0).Stop();
  nodes_[0] = nullptr;
}

// A HELLO without a model, an OFFER before any HELLO, or random bytes.
kv::v1::Frame Garbage(int kind, std::mt19937_64& random) {
  if (kind % 3 == 0) return ToFrame(Envelope{SessionId(0), Epoch(0), Hello{}});
  if (kind % 3 == 1) return ToFrame(Envelope{SessionId(random()), Epoch(1), Offer{}});
  kv::v1::Frame frame;
  frame.mutable_envelope()->resize(random() % 200);
  for (char& byte : *frame.mutable_envelope()) byte = static_cast<char>(random());
  return frame;
}

TEST_P(HandoffCluster, GarbageOnKvControlHarmsNothing) {
  Start(Blocks(64));
  std::mt19937_64 random(7);
  for (int i = 0; i < 50; ++i) {
    std::shared_ptr<kv::v1::KvControl::Stub> stub =
        kv::v1::KvControl::NewStub(MakeChannel(D(0).kv_address()));
    Received<Status> ended;
    StreamHandler<kv::v1::Frame> handler;
    handler.on_message = [](const kv::v1::Frame&) { return OkStatus(); };
    handler.on_closed = [&](const Status& status) { ended.Post(status); };
    using Stream = ClientStream<kv::v1::Frame, kv::v1::Frame>;
    const auto stream = Stream::Create(
        [stub](grpc::ClientContext* context,
               grpc::ClientBidiReactor<kv::v1::Frame, kv::v1::Frame>* reactor) {
          stub->async()->Control(context, reactor);
        },
        std::move(handler),
        100);
    Stream::Dial(stream);
    stream->Send(Garbage(i, random));
    const std::optional<Status> status = ended.Take(std::chrono::seconds(30));
    ASSERT_TRUE(status.has_value());
    EXPECT_FALSE(status->ok());
    EXPECT_TRUE(stream->AwaitClosed(std::chrono::seconds(30)));
  }
  const Request request = Numbered(1, 100, 5, 10);
  Dispatch(request, {&P(0), &D(0), 1});
  ExpectTokens(request, {&P(0), &D(0), 1});
}

INSTANTIATE_TEST_SUITE_P(Transports, HandoffCluster, ::testing::Values("shm", "tcp"));

}  // namespace
}  // namespace baton
