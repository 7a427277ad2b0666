#include "common/worker/dispatch_link.h"

#include <gtest/gtest.h>

#include "common/worker/kv_control_link.h"
#include "tests/fakes/engine_harness.h"
#include "tests/fakes/fake_router.h"

namespace baton {
namespace {

namespace pb = worker::v1;

constexpr Time kNow{std::chrono::hours(5)};

WorkerIdentity Both() {
  WorkerIdentity self;
  self.can_prefill = self.can_decode = true;
  return self;
}

pb::Dispatch Valid(pb::Dispatch::Kind kind) {
  pb::Dispatch dispatch = MakeDispatch(MakeRequest(7, 40, 1, 8), kind);
  dispatch.set_session_id(99);
  dispatch.mutable_peer()->set_worker_id("peer");
  dispatch.mutable_peer()->set_boot_id(5);
  dispatch.mutable_peer()->set_kv_address("127.0.0.1:9");
  return dispatch;
}

TEST(DispatchLink, KeepsEveryField) {
  pb::Dispatch dispatch = Valid(pb::Dispatch::PREFILL);
  dispatch.set_timeout_ms(1500);
  (*dispatch.mutable_sampling()->mutable_logit_bias())[3] = -2.5f;
  dispatch.add_stop_tokens(11);
  dispatch.set_priority(4);
  const StatusOr<DispatchOrder> order = FromProto(dispatch, Both(), kNow);
  ASSERT_TRUE(order.ok()) << order.status();
  const Request wanted = MakeRequest(7, 40, 1, 8);
  EXPECT_EQ(order->request.kind, RequestKind::kPrefill);
  EXPECT_EQ(order->request.tokens, wanted.tokens);
  EXPECT_EQ(order->request.prompt_length, wanted.prompt_length);
  EXPECT_EQ(order->request.max_tokens, 8);
  EXPECT_EQ(order->request.stop_tokens.back(), 11);
  EXPECT_EQ(order->request.priority, 4);
  EXPECT_EQ(order->request.arrival, kNow);
  EXPECT_EQ(order->request.deadline, kNow + std::chrono::milliseconds(1500));
  EXPECT_EQ(order->request.sampling.logit_bias.front().second, -2.5f);
  EXPECT_EQ(order->session, SessionId(99));
  EXPECT_EQ(order->peer.worker, WorkerId("peer"));
  EXPECT_EQ(order->peer.address, "127.0.0.1:9");
}

TEST(DispatchLink, NamesWhatIsWrong) {
  const auto refused = [](const pb::Dispatch& dispatch, const WorkerIdentity& self) {
    const StatusOr<DispatchOrder> order = FromProto(dispatch, self, kNow);
    EXPECT_EQ(order.status().code(), StatusCode::kInvalidArgument);
    return std::string(Message(order.status()));
  };
  pb::Dispatch dispatch = Valid(pb::Dispatch::KIND_UNSPECIFIED);
  EXPECT_NE(refused(dispatch, Both()).find("kind"), std::string::npos);
  EXPECT_NE(refused(Valid(pb::Dispatch::DECODE), WorkerIdentity()).find("cannot decode"),
            std::string::npos);
  dispatch = Valid(pb::Dispatch::PREFILL);
  dispatch.mutable_tokens()->push_back('x');
  EXPECT_NE(refused(dispatch, Both()).find("tokens"), std::string::npos);
  dispatch = Valid(pb::Dispatch::PREFILL);
  dispatch.mutable_peer()->clear_kv_address();
  EXPECT_NE(refused(dispatch, Both()).find("kv_address"), std::string::npos);
  dispatch = Valid(pb::Dispatch::DECODE);
  dispatch.set_session_id(0);
  EXPECT_NE(refused(dispatch, Both()).find("session_id"), std::string::npos);
  dispatch = Valid(pb::Dispatch::SERVE);
  for (int i = 0; i < 2000; ++i) dispatch.add_stop_tokens(i);
  EXPECT_NE(refused(dispatch, Both()).find("stop_tokens"), std::string::npos);
}

TEST(DispatchLink, TellsTheTargetAndTheStepTimes) {
  WorkerIdentity self = Both();
  self.itl_target = std::chrono::microseconds(9500);
  EXPECT_EQ(ToProto(self).itl_target_ms(), 9.5);
  LoadReport load;
  load.engine.step_ms_base = 4;
  load.engine.step_ms_per_token = 0.02;
  load.engine.step_ms_per_token_context = 3e-5;
  load.engine.step_ms_per_prompt_token = 0.03;
  load.engine.step_ms_per_prompt_token_context = 1e-6;
  const pb::Heartbeat heartbeat = ToProto(load);
  EXPECT_EQ(heartbeat.step_ms_base(), 4);
  EXPECT_EQ(heartbeat.step_ms_per_token(), 0.02);
  EXPECT_EQ(heartbeat.step_ms_per_token_context(), 3e-5);
  EXPECT_EQ(heartbeat.step_ms_per_prompt_token(), 0.03);
  EXPECT_EQ(heartbeat.step_ms_per_prompt_token_context(), 1e-6);
}

TEST(FirstTokens, RoundTripAndBounds) {
  std::vector<SampledToken> tokens = {{5, -0.5f, {{5, -0.5f}, {9, -1.5f}}}, {7, 0, {}}};
  const std::string payload = EncodeFirstTokens(tokens);
  const StatusOr<std::vector<SampledToken>> back = DecodeFirstTokens(payload, 2);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ((*back)[0].token, 5);
  EXPECT_EQ((*back)[0].top[1].token, 9);
  EXPECT_EQ((*back)[0].top[1].logprob, -1.5f);
  EXPECT_EQ((*back)[1].token, 7);
  EXPECT_FALSE(DecodeFirstTokens(payload, 1).ok());
  EXPECT_FALSE(DecodeFirstTokens("\xff\xff\xff garbage", 2).ok());
  for (size_t cut = 1; cut < payload.size(); ++cut) {
    (void)DecodeFirstTokens(payload.substr(0, cut), 2);  // must not crash
  }
}

}  // namespace
}  // namespace baton
