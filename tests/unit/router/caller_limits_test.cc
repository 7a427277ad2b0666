#include "router/frontend/caller_limits.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/retry_after.h"
#include "router/request_error.h"
#include "tests/support/temporary_folder.h"

namespace baton::router {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(RateBudget, RefillsUpToOneSecond) {
  ManualClock clock;
  RateBudget budget;
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(budget.Wait(5, clock.Now()), Duration::zero()) << i;
    budget.Take(1);
  }
  EXPECT_NEAR(ToSeconds(budget.Wait(5, clock.Now())), 0.2, 1e-6);
  clock.Advance(std::chrono::milliseconds(200));
  EXPECT_EQ(budget.Wait(5, clock.Now()), Duration::zero());
  clock.Advance(std::chrono::hours(1));
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(budget.Wait(5, clock.Now()), Duration::zero());
    budget.Take(1);
  }
  EXPECT_GT(budget.Wait(5, clock.Now()), Duration::zero());
}

TEST(RateBudget, ARateBelowOneMeansOneUnitNowAndThen) {
  ManualClock clock;
  RateBudget budget;
  EXPECT_EQ(budget.Wait(0.1, clock.Now()), Duration::zero());
  budget.Take(1);
  EXPECT_NEAR(ToSeconds(budget.Wait(0.1, clock.Now())), 10, 1e-6);
  clock.Advance(std::chrono::seconds(10));
  EXPECT_EQ(budget.Wait(0.1, clock.Now()), Duration::zero());
}

TEST(RateBudget, ADebtMustBePaid) {
  ManualClock clock;
  RateBudget budget;
  EXPECT_EQ(budget.Wait(100, clock.Now()), Duration::zero());
  budget.Take(1100);
  EXPECT_NEAR(ToSeconds(budget.Wait(100, clock.Now())), 10.01, 1e-6);
}

class CallerLimitsTest : public ::testing::Test {
 protected:
  void Allow(const KeyLimits& limits) {
    ApiKeys keys;
    ApiKey key;
    key.name = "k";
    key.tenant = "t";
    key.digest = Sha256("key");
    key.limits = limits;
    ASSERT_TRUE(keys.Add(key).ok());
    callers_ =
        Authenticator::Open({folder_.Write("keys", keys.ToJson()), "", {}}, refusals_).value();
    limits_ = std::make_unique<CallerLimits>(callers_.get(), clock_);
  }
  std::string Refusal() {
    const auto ticket = limits_->Admit("t/k");
    EXPECT_EQ(ticket.status().code(), StatusCode::kResourceExhausted);
    EXPECT_EQ(ReasonOf(ticket.status()), "rate_limit_exceeded");
    wait_ = RetryAfterOf(ticket.status());
    return std::string(Message(ticket.status()));
  }

  std::optional<Duration> wait_;  // of the last refusal
  TemporaryFolder folder_;
  MetricsRegistry metrics_;
  Refusals refusals_{metrics_};
  ManualClock clock_;
  std::unique_ptr<Authenticator> callers_;
  std::unique_ptr<CallerLimits> limits_;
};

TEST_F(CallerLimitsTest, WithoutKeysThereAreNoLimits) {
  EXPECT_EQ(*CallerLimits(nullptr, clock_).Admit("10.0.0.1"), nullptr);
}

TEST_F(CallerLimitsTest, RequestsInFlightAreCountedUntilTheirEnd) {
  Allow({.requests_in_flight = 2});
  auto first = *limits_->Admit("t/k");
  auto second = *limits_->Admit("t/k");
  EXPECT_THAT(Refusal(), HasSubstr("requests_in_flight"));
  EXPECT_FALSE(wait_.has_value()) << "no request has ended, so the time is unknown";
  clock_.Advance(std::chrono::seconds(12));
  first.reset();
  first = *limits_->Admit("t/k");
  Refusal();
  EXPECT_EQ(wait_, std::chrono::seconds(6)) << "of two requests that take 12 s, one ends each 6 s";
}

TEST_F(CallerLimitsTest, RequestsASecondAreLimited) {
  Allow({.requests_per_second = 1});
  EXPECT_TRUE(limits_->Admit("t/k").ok());
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("requests_per_second"), HasSubstr("try again in 1 s")));
  EXPECT_EQ(wait_, std::chrono::seconds(1));
  clock_.Advance(std::chrono::seconds(1));
  EXPECT_TRUE(limits_->Admit("t/k").ok());
}

TEST_F(CallerLimitsTest, TokensOfPromptsAndAnswersAreLimited) {
  Allow({.tokens_per_second = 10});
  const auto ticket = *limits_->Admit("t/k");
  RequestSpec spec;
  spec.prompt = std::vector<TokenId>(40, 1);
  spec.max_tokens = 10;
  ASSERT_TRUE(ticket->Apply(spec, true).ok());
  ticket->CountEnd(71, OkStatus());
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("tokens_per_second"), HasSubstr("try again in 11 s")));
  EXPECT_NEAR(ToSeconds(wait_.value()), 10.2, 1e-6);
  clock_.Advance(std::chrono::seconds(11));
  EXPECT_TRUE(limits_->Admit("t/k").ok());
}

TEST_F(CallerLimitsTest, AnAnswerWithoutMaxTokensIsShortened) {
  Allow({.output_tokens = 50});
  const auto ticket = *limits_->Admit("t/k");
  RequestSpec spec;
  spec.samples = 2;
  spec.max_tokens = 1000;
  ASSERT_TRUE(ticket->Apply(spec, false).ok());
  EXPECT_EQ(spec.max_tokens, 25);
  spec.max_tokens = 26;
  EXPECT_THAT(std::string(Message(ticket->Apply(spec, true))), HasSubstr("output_tokens"));
}

// 50 prompts never fit, so that a client which tries again would do so for ever.
TEST_F(CallerLimitsTest, MorePromptsThanALimitEverAdmitsAreInvalid) {
  const auto refusal = [&](int32_t prompts) {
    const Status status = limits_->Admit("t/k", prompts).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_FALSE(RetryAfterOf(status).has_value());
    EXPECT_EQ(MemberOf(status), "prompt");
    return std::string(Message(status));
  };
  Allow({.requests_in_flight = 4});
  EXPECT_THAT(refusal(5),
              AllOf(HasSubstr("5 prompts"), HasSubstr("requests_in_flight"), HasSubstr("is 4")));
  EXPECT_TRUE(limits_->Admit("t/k", 4).ok());
  Allow({.requests_per_second = 2.5});
  EXPECT_THAT(refusal(3), AllOf(HasSubstr("requests_per_second"), HasSubstr("is 2.5")));
  EXPECT_TRUE(limits_->Admit("t/k", 2).ok());
  Allow({.requests_per_second = 0.1});
  EXPECT_THAT(refusal(2), HasSubstr("requests_per_second"));
  EXPECT_TRUE(limits_->Admit("t/k").ok());
}

// A prompt with more tokens than the budget holds is served, and those that follow wait.
TEST_F(CallerLimitsTest, APromptOverTheBudgetOfTokensIsServed) {
  Allow({.tokens_per_second = 10});
  const auto ticket = *limits_->Admit("t/k");
  RequestSpec spec;
  spec.prompt = std::vector<TokenId>(1000, 1);
  EXPECT_TRUE(ticket->Apply(spec, true).ok());
  EXPECT_THAT(Refusal(), HasSubstr("tokens_per_second"));
}

TEST_F(CallerLimitsTest, OutputTokensAreThoseOfAllPromptsAndSamples) {
  Allow({.output_tokens = 50});
  const auto ticket = *limits_->Admit("t/k", 5);
  RequestSpec spec;
  spec.samples = 2;
  spec.max_tokens = 1000;
  ASSERT_TRUE(ticket->Apply(spec, false).ok());
  EXPECT_EQ(spec.max_tokens, 5);
  spec.max_tokens = 6;
  EXPECT_THAT(
      std::string(Message(ticket->Apply(spec, true))),
      AllOf(HasSubstr("max_tokens is 6 for each of 10 answers"), HasSubstr("output_tokens")));
  const auto many = *limits_->Admit("t/k", 26);
  const Status none = many->Apply(spec, false);
  EXPECT_EQ(none.code(), StatusCode::kInvalidArgument) << "52 answers need 52 tokens";
  EXPECT_THAT(std::string(Message(none)), HasSubstr("52 answers"));
}

TEST_F(CallerLimitsTest, UsageIsCountedByCaller) {
  Allow({.requests_in_flight = 1});
  const auto ticket = *limits_->Admit("t/k");
  Refusal();
  ticket->CountEnd(7, Status(StatusCode::kInternal, "broken"));
  limits_->CountRefused("t/k", InvalidArgument("not JSON"));
  limits_->CountRefused("a stranger", InvalidArgument("not JSON"));
  const std::vector<CallerUsage> top = limits_->Top(10);
  ASSERT_EQ(top.size(), 1u);
  EXPECT_EQ(top[0].id, "t/k");
  EXPECT_EQ(top[0].running, 1);
  EXPECT_EQ(top[0].requests, 3);
  EXPECT_EQ(top[0].tokens, 7);
  EXPECT_EQ(top[0].errors.at(StatusCode::kInvalidArgument), 1);
  EXPECT_EQ(top[0].errors.at(StatusCode::kResourceExhausted), 1);
  EXPECT_EQ(top[0].errors.at(StatusCode::kInternal), 1);
  EXPECT_TRUE(limits_->Top(0).empty());
}

TEST_F(CallerLimitsTest, AKeyThatWasRemovedIsRefused) {
  Allow({});
  EXPECT_EQ(limits_->Admit("t/other").status().code(), StatusCode::kUnauthenticated);
}

}  // namespace
}  // namespace baton::router
