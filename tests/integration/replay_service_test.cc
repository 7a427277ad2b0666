#include <future>
#include <string>

#include <gmock/gmock.h>

#include "common/log/log.h"
#include "tests/integration/router_service.h"
#include "tests/support/captured_stderr.h"

// Replays of finished requests, and requests of operators on named workers, through a router's
// services.
namespace baton {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class ReplayServiceTest : public RouterServiceTest {
 protected:
  ReplayServiceTest() : RouterServiceTest({"replay.sample=1"}) {}

  // The worker `first` answers a client with `text`; the other one then replays the request and
  // answers with `replayed`.
  void Serve(const std::string& text, const std::string& replayed) {
    FakeWorker one(WorkerOptions("one"));
    // The only worker serves the client.
    const auto call = Begin(Ask("a secret prompt"));
    const worker::v1::Dispatch dispatch = one.AwaitDispatch();
    FakeWorker two(WorkerOptions("two"));
    one.Say(dispatch, 0, 0, text, FinishReason::kLength);
    one.Finish(dispatch);
    ASSERT_TRUE(call->ReadToEnd().ok());
    const worker::v1::Dispatch replay = two.AwaitDispatch();
    EXPECT_NE(replay.request_id(), dispatch.request_id());
    two.Say(replay, 0, 0, replayed, FinishReason::kLength);
    two.Finish(replay);
    Await(
        [&] {
          const admin::v1::ClusterStatus status = ClusterStatus();
          return status.replays().checked() + status.replays().mismatches() == 1;
        },
        "the end of the replay");
  }
};

TEST_F(ReplayServiceTest, EqualTokensAreCountedAndNotLogged) {
  CapturedStderr log;
  Serve("answer", "answer");
  ASSERT_TRUE(FlushLog(std::chrono::seconds(5)));
  const std::string text = log.Text();
  EXPECT_THAT(text, Not(HasSubstr("replay differs")));
  EXPECT_EQ(router_->Metric("baton_replay_checked_total"), 1);
  EXPECT_EQ(router_->Metric("baton_replay_mismatches_total"), 0);
  EXPECT_EQ(ClusterStatus().requests_total(), 1) << "replays are not counted";
}

TEST_F(ReplayServiceTest, AMismatchIsLoggedWithItsPlaceAndWithoutText) {
  CapturedStderr log;
  Serve("answer", "ansXer");
  ASSERT_TRUE(FlushLog(std::chrono::seconds(5)));
  const std::string text = log.Text();
  EXPECT_EQ(router_->Metric("baton_replay_mismatches_total"), 1);
  EXPECT_EQ(router_->Metric("baton_replay_checked_total"), 0);
  EXPECT_THAT(text,
              AllOf(HasSubstr("its replay differs from its first run in sample 0 at output "
                              "position 3"),
                    HasSubstr("decode worker one gave token 119"),
                    HasSubstr("decode worker two gave token 88")));
  EXPECT_THAT(text, AllOf(Not(HasSubstr("secret")), Not(HasSubstr("answer"))));
}

TEST_F(RouterServiceTest, WithoutASampleNothingIsReplayed) {
  EXPECT_FALSE(ClusterStatus().has_replays());
}

TEST_F(RouterServiceTest, AnOperatorsRequestRunsOnTheNamedWorker) {
  FakeWorker other(WorkerOptions("a"));
  FakeWorker named(WorkerOptions("b"));
  grpc::ClientContext context;
  admin::v1::GenerateOnRequest request;
  request.set_prompt("x");
  request.set_decode_worker("b");
  request.set_max_tokens(3);
  admin::v1::GenerateOnResponse response;
  auto answered = std::async(std::launch::async,
                             [&] { return admin_->GenerateOn(&context, request, &response); });
  const worker::v1::Dispatch dispatch = named.AwaitDispatch();
  named.Say(dispatch, 0, 0, "abc", FinishReason::kLength);
  named.Finish(dispatch);
  const grpc::Status status = answered.get();
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_THAT(response.token_ids(), ::testing::ElementsAre('a', 'b', 'c'));
  EXPECT_EQ(response.finish(), "length");
}

TEST_F(RouterServiceTest, AnOperatorsRequestSaysWhatIsWrong) {
  FakeWorker worker(WorkerOptions("a"));
  const auto generate = [&](const std::string& prefill, const std::string& decode, int max) {
    grpc::ClientContext context;
    admin::v1::GenerateOnRequest request;
    request.set_prompt("x");
    request.set_prefill_worker(prefill);
    request.set_decode_worker(decode);
    request.set_max_tokens(max);
    admin::v1::GenerateOnResponse response;
    return admin_->GenerateOn(&context, request, &response).error_message();
  };
  EXPECT_THAT(generate("", "", 1), HasSubstr("decode_worker is empty"));
  EXPECT_THAT(generate("", "a", 0), HasSubstr("it must be at least 1"));
  EXPECT_THAT(generate("", "nobody", 1), HasSubstr("no worker named nobody has joined"));
  EXPECT_THAT(generate("a", "a", 1), HasSubstr("named for both parts"));
  FakeWorker second(WorkerOptions("b"));
  EXPECT_THAT(generate("b", "a", 1), HasSubstr("worker b is not a prefill worker"));
}

}  // namespace
}  // namespace baton
