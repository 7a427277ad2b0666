#pragma once

#include <chrono>
#include <future>
#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "tests/fakes/engine_harness.h"
#include "tests/fakes/fake_router.h"
#include "tests/fakes/worker_node.h"

namespace baton {

// A prefill worker "p" and a decode worker "d" with a fake router that sends the messages of a
// test. For tests of the two roles with lost, late or wrong messages. After the test neither worker
// may hold a lease or a request.
class WorkerPair : public ::testing::Test {
 protected:
  // Time limits of the workers: one that no test reaches, and one that a test can wait for.
  static constexpr Duration kLongWait = std::chrono::seconds(600);
  static constexpr Duration kSoon = std::chrono::milliseconds(100);

  void Start(NodeOptions prefill = {}, NodeOptions decode = {}) {
    prefill.id = "p";
    prefill.prefill = true;
    decode.id = "d";
    decode.decode = true;
    for (NodeOptions* options : {&prefill, &decode}) {
      options->router = router_.address();
      if (options->kv.blocks == 0) options->kv.blocks = 64;
    }
    p_ = std::make_unique<WorkerNode>(prefill);
    d_ = std::make_unique<WorkerNode>(decode);
    router_.AwaitJoin("p");
    router_.AwaitJoin("d");
  }

  void TearDown() override {
    for (const auto* node : {&p_, &d_}) {
      if (*node == nullptr) continue;
      (*node)->ExpectNothingHeld();
      (*node)->Stop();
    }
  }

  static NodeOptions Waits(Duration wait) {
    NodeOptions options;
    options.match_wait = options.redirect_wait = wait;
    return options;
  }
  // A request of epoch 1.
  static Request Prompt(uint64_t id, int32_t length = 90, int32_t max_tokens = 10) {
    Request request = MakeRequest(id, length, id, max_tokens);
    request.epoch = Epoch(1);
    return request;
  }

  worker::v1::Dispatch Order(const Request& request,
                             worker::v1::Dispatch::Kind kind,
                             uint64_t session) {
    worker::v1::Dispatch order = MakeDispatch(request, kind);
    order.set_session_id(session);
    SetPeer(kind == worker::v1::Dispatch::PREFILL ? *d_ : *p_, *order.mutable_peer());
    return order;
  }
  void Send(const std::string& worker, const worker::v1::Dispatch& order) {
    worker::v1::ToWorker message;
    *message.add_dispatches() = order;
    router_.Send(worker, message);
  }
  void SendPrefill(const Request& request, uint64_t session) {
    Send("p", Order(request, worker::v1::Dispatch::PREFILL, session));
  }
  void SendDecode(const Request& request, uint64_t session) {
    Send("d", Order(request, worker::v1::Dispatch::DECODE, session));
  }
  void Cancel(const std::string& worker, const Request& request) {
    worker::v1::ToWorker message;
    message.add_cancels()->set_request_id(request.id.value());
    message.mutable_cancels(0)->set_epoch(request.epoch.value());
    router_.Send(worker, message);
  }
  // A redirect to the decode worker "d".
  worker::v1::ToWorker RedirectOf(const Request& request,
                                  uint64_t session,
                                  uint32_t decode_epoch = 1) {
    worker::v1::ToWorker message;
    worker::v1::Redirect& redirect = *message.add_redirects();
    redirect.set_request_id(request.id.value());
    redirect.set_epoch(request.epoch.value());
    redirect.set_session_id(session);
    redirect.set_decode_epoch(decode_epoch);
    SetPeer(*d_, *redirect.mutable_peer());
    return message;
  }
  void Redirect(const Request& request, uint64_t session, uint32_t decode_epoch = 1) {
    router_.Send("p", RedirectOf(request, session, decode_epoch));
  }

  // Waits until `worker` has reported `count` hand-offs of the request, and returns them.
  std::vector<worker::v1::Handoff> AwaitHandoffs(const std::string& worker,
                                                 const Request& request,
                                                 size_t count = 1) {
    return router_
        .Await(
            worker,
            request.id.value(),
            request.epoch.value(),
            [&](const FakeRouter::WorkerReports& heard) { return heard.handoffs.size() >= count; })
        .handoffs;
  }
  worker::v1::Failed AwaitFailed(const std::string& worker, const Request& request) {
    return router_.AwaitEnd(worker, request.id.value(), request.epoch.value()).Failure();
  }
  // Waits until both workers have ended the request, and checks that their tokens together are the
  // tokens that the model must give.
  void ExpectServed(const Request& request) {
    std::vector<TokenId> all = router_.AwaitEnd("p", request.id.value()).Tokens(0);
    const FakeRouter::WorkerReports rest = router_.AwaitEnd("d", request.id.value());
    ASSERT_TRUE(rest.finished.has_value()) << rest.Ending();
    const std::vector<TokenId> more = rest.Tokens(0);
    all.insert(all.end(), more.begin(), more.end());
    EXPECT_EQ(all, d_->model().Expected(request, 0));
  }
  void AwaitExpecting(int32_t count) {
    router_.AwaitHeartbeat(
        "d", [count](const worker::v1::Heartbeat& beat) { return beat.awaiting_kv() == count; });
  }

  // Returns when the worker's thread has done everything that was posted before this call.
  static void AwaitBatch(WorkerNode& node) {
    // The second task runs in a later batch than everything that was posted before the first one.
    for (int i = 0; i < 2; ++i) {
      std::promise<void> ran;
      node.worker().loop().PostInternal([&ran] { ran.set_value(); });
      ran.get_future().wait();
    }
  }
  // Starts a drain of the worker. Returns whether the worker had nothing left to wait for.
  static bool DrainsAtOnce(WorkerNode& node) {
    (void)node.worker().Drain(Duration::zero());
    AwaitBatch(node);
    return node.worker().Drain(Duration::zero());
  }

  static void SetPeer(WorkerNode& node, worker::v1::Peer& peer) {
    peer.set_worker_id(node.id());
    peer.set_boot_id(node.boot());
    peer.set_kv_address(node.kv_address());
  }

  FakeRouter router_;
  std::unique_ptr<WorkerNode> p_;
  std::unique_ptr<WorkerNode> d_;
};

}  // namespace baton
