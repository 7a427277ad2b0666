#include "tests/integration/router_service.h"

#include <atomic>
#include <chrono>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>
#include <grpcpp/support/channel_arguments.h>

#include "tests/support/raw_http.h"

// Tests of the Generate method of a router's gRPC services.
namespace baton {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kGenerate[] = "/baton.v1.Generation/Generate";

TEST_F(RouterServiceTest, TokensComeAsTheyAreMade) {
  FakeWorker worker(WorkerOptions());
  v1::GenerateRequest request = Ask("Hi");
  request.set_echo_tokens(true);
  request.set_top_logprobs(2);
  const auto call = Begin(request);
  const worker::v1::Dispatch dispatch = worker.AwaitDispatch();
  EXPECT_EQ(dispatch.tokens(), std::string("H\0\0\0i\0\0\0", 8));
  worker.Say(dispatch, 0, 0, "a", FinishReason::kNone, 2);
  call->ReadUntil(0, "a");  // the first token must arrive before the next one is sent
  EXPECT_THAT(call->last.token_ids(), ::testing::ElementsAre('a'));
  ASSERT_EQ(call->last.logprobs_size(), 1);
  EXPECT_EQ(call->last.logprobs(0).chosen().piece(), "a");
  EXPECT_EQ(call->last.logprobs(0).top_size(), 2);
  worker.Say(dispatch, 0, 1, "bc", FinishReason::kLength);
  worker.Finish(dispatch);
  EXPECT_TRUE(call->ReadToEnd().ok());
  EXPECT_EQ(call->text[0], "abc");
  EXPECT_EQ(call->finish[0], v1::FINISH_REASON_LENGTH);
  EXPECT_EQ(call->last.usage().prompt_tokens(), 2);
  EXPECT_EQ(call->last.usage().generated_tokens(), 3);
  EXPECT_EQ(call->last.usage().cached_tokens(), 3);
  EXPECT_EQ(call->last.timings().decode_worker(), "worker");
  EXPECT_EQ(call->last.timings().attempts(), 1);
}

TEST_F(RouterServiceTest, WhatComesTogetherIsOneMessage) {
  FakeWorker worker(WorkerOptions());
  v1::GenerateRequest request = Ask("Hi");
  request.set_echo_tokens(true);
  const auto call = Begin(request);
  const worker::v1::Dispatch dispatch = worker.AwaitDispatch();
  worker::v1::ToRouter message;
  worker::v1::Token& token = *message.add_tokens();
  token.set_request_id(dispatch.request_id());
  token.set_epoch(dispatch.epoch());
  token.set_token('a');
  token.set_finish(static_cast<int>(FinishReason::kLength));
  worker::v1::Finished& finished = *message.add_finished();
  finished.set_request_id(dispatch.request_id());
  finished.set_epoch(dispatch.epoch());
  worker.Send(message);
  ASSERT_TRUE(call->Read());
  EXPECT_EQ(call->last.text(), "a");
  EXPECT_THAT(call->last.token_ids(), ::testing::ElementsAre('a'));
  EXPECT_EQ(call->last.finish(), v1::FINISH_REASON_LENGTH);
  EXPECT_EQ(call->last.usage().generated_tokens(), 1);
  EXPECT_EQ(call->last.timings().decode_worker(), "worker");
  EXPECT_FALSE(call->Read());
  EXPECT_TRUE(call->stream->Finish().ok());
}

TEST_F(RouterServiceTest, AClientThatDoesNotReadIsCutOffAndHoldsUpNobody) {
  FakeWorker worker(WorkerOptions());
  v1::GenerateRequest request = Ask("slow");
  request.set_echo_tokens(true);
  request.set_top_logprobs(20);
  const auto slow = Begin(request);
  const worker::v1::Dispatch unread = worker.AwaitDispatch(0);
  const auto other = Begin(Ask("quick"));
  const worker::v1::Dispatch read = worker.AwaitDispatch(1);
  // A token takes about 200 bytes of answer. The total is far more than the router's bound plus all
  // buffers between router and client.
  const std::string thousand(1000, 'x');
  int32_t said = 0;
  std::string quick;
  for (; said < 90'000 && !worker.Cancelled(unread); said += 1000) {
    worker.Say(unread, 0, said, thousand, FinishReason::kNone, 20);
    const char letter = static_cast<char>('a' + said / 1000 % 26);
    worker.Say(read, 0, static_cast<int32_t>(quick.size()), std::string(1, letter));
    quick.push_back(letter);
    other->ReadUntil(0, quick);  // the other call must still be served
  }
  worker.AwaitCancel(unread);
  worker.Say(read, 0, static_cast<int32_t>(quick.size()), "!", FinishReason::kLength);
  worker.Finish(read);
  EXPECT_TRUE(other->ReadToEnd().ok());
  const grpc::Status status = slow->ReadToEnd();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("unread"));
  EXPECT_LT(slow->text[0].size(), static_cast<size_t>(said));
  AwaitNoRequest();
}

TEST_F(RouterServiceTest, AClientThatLagsByABoundedNumberOfBytesGetsAll) {
  constexpr int kRound = 1000;
  constexpr int kRounds = 30;
  constexpr size_t kLag = 8000;  // tokens of about 250 bytes of answer each
  FakeWorker worker(WorkerOptions());
  // The connection buffers little, so that unread bytes wait in the router.
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, 64 << 10);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  stub_ = v1::Generation::NewStub(grpc::CreateCustomChannel(
      router_->address("grpc"), grpc::InsecureChannelCredentials(), arguments));
  v1::GenerateRequest request = Ask("behind", 2);
  request.set_echo_tokens(true);
  request.set_top_logprobs(20);
  const auto call = Begin(request);
  const worker::v1::Dispatch dispatch = worker.AwaitDispatch();
  const auto received = [&] { return call->text[0].size() + call->text[1].size(); };
  for (int round = 0; round < kRounds; ++round) {
    const FinishReason finish = round + 1 < kRounds ? FinishReason::kNone : FinishReason::kLength;
    for (const int sample : {0, 1}) {
      worker.Say(dispatch, sample, round * kRound, std::string(kRound, 'x'), finish, 20);
    }
    const size_t said = size_t{2} * kRound * static_cast<size_t>(round + 1);
    while (received() + kLag < said) ASSERT_TRUE(call->Read());
  }
  worker.Finish(dispatch);
  const grpc::Status status = call->ReadToEnd();
  EXPECT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(received(), size_t{2} * kRound * kRounds);
}

TEST_F(RouterServiceTest, AClientThatLeavesEndsItsRequestAtTheWorker) {
  FakeWorker worker(WorkerOptions());
  const auto call = Begin(Ask("going"));
  const worker::v1::Dispatch dispatch = worker.AwaitDispatch();
  worker.Say(dispatch, 0, 0, "a");
  call->ReadUntil(0, "a");
  call->context.TryCancel();
  EXPECT_EQ(call->ReadToEnd().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_FALSE(worker.AwaitCancel(dispatch).complete());
  AwaitNoRequest();
}

// A proxy passes on what many clients cancel, over one connection. It is not taken for a flood.
TEST_F(RouterServiceTest, ACallerMayCancel500CallsASecond) {
  constexpr int kCallers = 4;
  constexpr int kCallsOfEach = 400;
  constexpr auto kInterval = std::chrono::milliseconds(8);  // of one caller
  FakeWorker worker(WorkerOptions());
  const auto first = Begin(Ask("proof"));
  const worker::v1::Dispatch dispatch = worker.AwaitDispatch();
  worker.Say(dispatch, 0, 0, "a", FinishReason::kLength);
  worker.Finish(dispatch);
  ASSERT_TRUE(first->ReadToEnd().ok());
  std::atomic<int> lost = 0;
  std::vector<std::jthread> callers;
  for (int caller = 0; caller < kCallers; ++caller) {
    callers.emplace_back([&] {
      auto next = std::chrono::steady_clock::now();
      for (int i = 0; i < kCallsOfEach; ++i) {
        std::this_thread::sleep_until(next += kInterval);
        const auto call = Begin(Ask("cancelled"));
        call->context.TryCancel();
        if (call->ReadToEnd().error_code() != grpc::StatusCode::CANCELLED) ++lost;
      }
    });
  }
  callers.clear();
  EXPECT_EQ(lost, 0);
  EXPECT_EQ(channel_->GetState(false), GRPC_CHANNEL_READY);
  AwaitNoRequest();
}

TEST_F(RouterServiceTest, TheCallsDeadlineIsTheRequests) {
  FakeWorker worker(WorkerOptions());
  const auto call = Begin(Ask("late"), std::chrono::seconds(1));
  const worker::v1::Dispatch dispatch = worker.AwaitDispatch();
  EXPECT_GT(dispatch.timeout_ms(), 0u);
  // gRPC converts the deadline between two clocks, which adds the time that the thread waits
  // between the two readings.
  EXPECT_LE(dispatch.timeout_ms(), 1200u);
  EXPECT_EQ(call->ReadToEnd().error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_FALSE(worker.AwaitCancel(dispatch).complete());
}

TEST_F(RouterServiceTest, ARequestsOwnTimeEndsItWithAStatusOrAfterTokensWithAMessage) {
  FakeWorker worker(WorkerOptions());
  v1::GenerateRequest request = Ask("late");
  request.set_timeout_ms(200);
  const auto silent = Begin(request);
  const grpc::Status status = silent->ReadToEnd();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_THAT(status.error_message(), HasSubstr("0.200 s"));
  request.set_timeout_ms(1000);
  const auto begun = Begin(request);
  worker.Say(worker.AwaitDispatch(1), 0, 0, "a");
  EXPECT_TRUE(begun->ReadToEnd().ok());
  EXPECT_EQ(begun->text[0], "a");
  EXPECT_EQ(begun->last.finish(), v1::FINISH_REASON_ERROR);
  EXPECT_EQ(begun->last.error().code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_TRUE(begun->last.error().retryable());
}

TEST_F(RouterServiceTest, AStopStringTellsTheWorkerThatTheRequestIsComplete) {
  FakeWorker worker(WorkerOptions());
  v1::GenerateRequest request = Ask("one");
  request.add_stop("END");
  const auto call = Begin(request);
  const worker::v1::Dispatch dispatch = worker.AwaitDispatch();
  worker.Say(dispatch, 0, 0, "aEND and more");
  EXPECT_TRUE(worker.AwaitCancel(dispatch).complete());
  EXPECT_TRUE(call->ReadToEnd().ok());
  EXPECT_EQ(call->text[0], "a");
}

TEST_F(RouterServiceTest, AStopStringOfOneSampleStopsThatSampleAtTheWorker) {
  FakeWorker worker(WorkerOptions());
  v1::GenerateRequest request = Ask("two", 2);
  request.add_stop("END");
  const auto call = Begin(request);
  const worker::v1::Dispatch dispatch = worker.AwaitDispatch();
  worker.Say(dispatch, 0, 0, "aEND and more");
  worker.Say(dispatch, 1, 0, "bEN");
  worker.AwaitCancel(dispatch, 0);
  EXPECT_FALSE(worker.Cancelled(dispatch, 1));
  EXPECT_FALSE(worker.Cancelled(dispatch));
  worker.Say(dispatch, 0, 13, "never shown");
  worker.Say(dispatch, 1, 3, "tities", FinishReason::kLength);
  worker.Finish(dispatch);
  EXPECT_TRUE(call->ReadToEnd().ok());
  EXPECT_EQ(call->text[0], "a");
  EXPECT_EQ(call->text[1], "bENtities");
  EXPECT_EQ(call->finish[0], v1::FINISH_REASON_STOP);
  EXPECT_EQ(call->finish[1], v1::FINISH_REASON_LENGTH);
}

TEST_F(RouterServiceTest, BadRequestsAreRefusedByName) {
  FakeWorker worker(WorkerOptions());
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  using Change = std::function<void(v1::GenerateRequest&)>;
  const std::vector<std::pair<Change, const char*>> cases = {
      {[](auto& r) { r.set_text(""); }, "text is empty"},
      {[](auto& r) { r.clear_input(); }, "no input"},
      {[](auto& r) { r.set_text(std::string(kContext, 'x')); },
       "this model's maximum context length is 1048576 tokens"},
      {[](auto& r) { r.mutable_tokens()->add_ids(256); }, "tokens.ids[0] is 256"},
      {[](auto& r) { r.mutable_chat(); }, "chat.messages is empty"},
      {[=](auto& r) { r.mutable_sampling()->set_temperature(nan); }, "sampling.temperature is nan"},
      {[=](auto& r) { r.mutable_sampling()->set_top_p(nan); }, "sampling.top_p is nan"},
      {[=](auto& r) { r.mutable_sampling()->set_min_p(nan); }, "sampling.min_p is nan"},
      {[=](auto& r) { r.mutable_sampling()->set_repetition_penalty(infinity); },
       "sampling.repetition_penalty is inf"},
      {[=](auto& r) { r.mutable_sampling()->set_presence_penalty(nan); },
       "presence_penalty is nan"},
      {[=](auto& r) { r.mutable_sampling()->set_frequency_penalty(-infinity); },
       "frequency_penalty is -inf"},
      {[=](auto& r) { (*r.mutable_sampling()->mutable_logit_bias())[3] = nan; },
       "sampling.logit_bias[3] is nan"},
      {[](auto& r) {
         for (int i = 0; i < 10'000; ++i) r.add_stop("stop");
       },
       "stop has 10000 strings; at most 64 are allowed"},
      {[](auto& r) { r.add_stop(std::string(1025, 'x')); }, "stop[0] is 1025"},
      {[](auto& r) { r.set_samples(65); }, "samples is 65"},
      {[](auto& r) { r.set_top_logprobs(21); }, "top_logprobs is 21"},
      {[](auto& r) { r.set_max_tokens(0); }, "max_tokens is 0"},
  };
  for (const auto& [change, message] : cases) {
    v1::GenerateRequest request = Ask("x");
    change(request);
    const grpc::Status status = StatusOf(request);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << message;
    EXPECT_THAT(status.error_message(), HasSubstr(message));
  }
  v1::GenerateRequest other = Ask("x");
  other.set_model("other");
  EXPECT_EQ(StatusOf(other).error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_THAT(StatusOf(other).error_message(), HasSubstr("this cluster serves \"bytes\""));
  AwaitNoRequest();
}

TEST_F(RouterServiceTest, TextThatIsNotUtf8IsRefused) {
  FakeWorker worker(WorkerOptions());
  for (const std::string& request :
       {StringField(2, "caf\xe9"),                                                     // text
        StringField(3, StringField(1, StringField(1, "u") + StringField(2, "\xff"))),  // chat
        StringField(2, "x") + StringField(9, "\xc3")}) {                               // stop
    const RawAnswer answer = RawCall(channel_, kGenerate, request);
    EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_THAT(answer.status.error_message(), HasSubstr("UTF-8"));
  }
}

TEST_F(RouterServiceTest, BytesThatAreNoMessageAreRefused) {
  for (const char* method : {kGenerate, "/baton.v1.Generation/Tokenize"}) {
    const RawAnswer answer = RawCall(channel_, method, "\xff\xff\xff");
    EXPECT_EQ(answer.status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_THAT(answer.status.error_message(), HasSubstr("malformed"));
  }
  EXPECT_EQ(RawCall(channel_, "/baton.v1.Generation/Nothing", "").status.error_code(),
            grpc::StatusCode::UNIMPLEMENTED);
}

TEST_F(RouterServiceTest, WithoutAWorkerARequestSaysSoWhenItsTimeIsOver) {
  v1::GenerateRequest request = Ask("x");
  request.set_timeout_ms(50);
  const grpc::Status status = StatusOf(request);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_THAT(status.error_message(), HasSubstr("no worker has joined this router"));
}

TEST_F(RouterServiceTest, APromptBeyondEveryArenaIsInvalid) {
  FakeWorker::Options options = WorkerOptions();
  options.blocks = 10;
  FakeWorker worker(options);
  const grpc::Status status = StatusOf(Ask(std::string(200, 'x')));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("the prompt of 200 tokens does not fit"));
  const std::string body = R"({"prompt": ")" + std::string(200, 'x') + R"("})";
  const HttpAnswer answer = HttpSend(router_->http(), PostRequest("/v1/completions", body));
  EXPECT_EQ(answer.status, 400);
  EXPECT_THAT(answer.head, Not(HasSubstr("Retry-After")));
  EXPECT_THAT(answer.body, HasSubstr("invalid_request_error"));
}

TEST_F(RouterServiceTest, WithoutMaxTokensAnAnswerIsBoundedByTheArena) {
  FakeWorker::Options options = WorkerOptions();
  options.blocks = 10;
  FakeWorker worker(options);
  v1::GenerateRequest request = Ask(std::string(40, 'x'));
  request.clear_max_tokens();
  const auto bounded = Begin(request);
  EXPECT_EQ(worker.AwaitDispatch(0).max_tokens(), 9 * 16 + 1 - 40);
  // A max_tokens that the client sets is passed on unchanged, even when the arena is too small.
  request.set_max_tokens(5000);
  const auto asked = Begin(request);
  EXPECT_EQ(worker.AwaitDispatch(1).max_tokens(), 5000);
}

TEST_F(RouterServiceTest, TheArenaOfAWorkerThatLeftBoundsNoAnswer) {
  FakeWorker large(WorkerOptions("large"));
  FakeWorker::Options options = WorkerOptions("small");
  options.blocks = 10;
  FakeWorker small(options);
  small.Leave();
  Await([&] { return ClusterStatus().workers_size() == 1; }, "the end of the small worker");
  v1::GenerateRequest request = Ask(std::string(40, 'x'));
  request.clear_max_tokens();
  const auto call = Begin(request);
  EXPECT_EQ(large.AwaitDispatch().max_tokens(), kContext - 40);
}

class ShortWaits : public RouterServiceTest {
 protected:
  ShortWaits() : RouterServiceTest({"worker_wait_seconds=0.05"}) {}
};

TEST_F(ShortWaits, WithoutAWorkerARequestEndsAfterTheWait) {
  const grpc::Status status = StatusOf(Ask("x"));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(status.error_message(), HasSubstr("no worker has joined this router"));
}

class SmallMessages : public RouterServiceTest {
 protected:
  SmallMessages() : RouterServiceTest({"max_request_bytes=65536"}) {}
};

TEST_F(SmallMessages, ARequestOverTheLimitIsRefusedAndTheNextIsServed) {
  FakeWorker worker(WorkerOptions());
  const grpc::Status status = StatusOf(Ask(std::string(70'000, 'x')));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(status.error_message(), HasSubstr("65536"));
  const auto call = Begin(Ask(std::string(60'000, 'x')));
  const worker::v1::Dispatch dispatch = worker.AwaitDispatch();
  worker.Say(dispatch, 0, 0, "a", FinishReason::kLength);
  worker.Finish(dispatch);
  EXPECT_TRUE(call->ReadToEnd().ok());
}

}  // namespace
}  // namespace baton
