#include "common/metrics/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/metrics/request_outcome.h"

namespace baton {
namespace {

using ::testing::HasSubstr;

TEST(MetricsTest, SeriesAppearInTheText) {
  MetricsRegistry registry;
  Counter requests = registry.AddCounter("baton_requests_total", "Requests.", {{"kind", "chat"}});
  requests.Add();
  requests.Add(2);
  registry.AddGauge("baton_requests_running", "Running.").Set(5);
  registry.AddHistogram("baton_ttft_seconds", "TTFT.", {0.1, 1}).Observe(0.5);
  const std::string text = registry.Serialize();
  EXPECT_THAT(text, HasSubstr("baton_requests_total{kind=\"chat\"} 3"));
  EXPECT_THAT(text, HasSubstr("baton_requests_running 5"));
  EXPECT_THAT(text, HasSubstr("baton_ttft_seconds_bucket{le=\"0.1\"} 0"));
  EXPECT_THAT(text, HasSubstr("baton_ttft_seconds_bucket{le=\"1\"} 1"));
}

TEST(MetricsTest, TheSameNameAndLabelsAreTheSameSeries) {
  MetricsRegistry registry;
  registry.AddCounter("baton_a_total", "A.").Add();
  Counter again = registry.AddCounter("baton_a_total", "A.");
  again.Add();
  EXPECT_EQ(again.value(), 2);
}

TEST(MetricsTest, UpdatesRunBeforeTheTextIsMade) {
  MetricsRegistry registry;
  int calls = 0;
  const auto key = registry.AddUpdate([&] {
    registry.AddGauge("baton_live", "Live.", {{"peer", "d0"}}).Set(++calls);
  });
  EXPECT_THAT(registry.Serialize(), HasSubstr("baton_live{peer=\"d0\"} 1"));
  EXPECT_THAT(registry.Serialize(), HasSubstr("baton_live{peer=\"d0\"} 2"));
  registry.RemoveUpdate(key);
  EXPECT_THAT(registry.Serialize(), HasSubstr("baton_live{peer=\"d0\"} 2"));
}

TEST(MetricsTest, ACounterFollowsATotalThatOnlyGrows) {
  MetricsRegistry registry;
  Counter steps = registry.AddCounter("baton_steps_total", "Steps.");
  steps.RaiseTo(5);
  steps.RaiseTo(3);
  EXPECT_EQ(steps.value(), 5);
  steps.RaiseTo(7);
  EXPECT_EQ(steps.value(), 7);
}

TEST(MetricsTest, OutcomesTellFaultsFromWhatClientsDid) {
  for (const auto& [code, name] : std::initializer_list<std::pair<StatusCode, const char*>>{
           {StatusCode::kOk, "done"},
           {StatusCode::kCancelled, "cancelled"},
           {StatusCode::kInvalidArgument, "invalid"},
           {StatusCode::kNotFound, "invalid"},
           {StatusCode::kResourceExhausted, "refused"},
           {StatusCode::kDeadlineExceeded, "deadline"},
           {StatusCode::kUnavailable, "failed"},
           {StatusCode::kInternal, "failed"}}) {
    EXPECT_EQ(Name(OutcomeOf(Status(code, ""))), name);
  }
  MetricsRegistry registry;
  OutcomeCounter requests(registry, "baton_requests_total", "Requests.");
  requests.Add(RequestOutcome::kInvalid);
  requests.Add(RequestOutcome::kFailed);
  EXPECT_EQ(requests.total(), 2);
  const std::string text = registry.Serialize();
  EXPECT_THAT(text, HasSubstr("baton_requests_total{outcome=\"invalid\"} 1"));
  EXPECT_THAT(text, HasSubstr("baton_requests_total{outcome=\"done\"} 0"));
}

TEST(MetricsDeathTest, ANameIsOfOneKindWithOneMeaning) {
  MetricsRegistry registry;
  registry.AddGauge("baton_a", "A.");
  EXPECT_DEATH(registry.AddHistogram("baton_a", "A.", {1}), "declared as two kinds");
  EXPECT_DEATH(registry.AddGauge("baton_a", "B."), "two meanings: \"A.\" and \"B.\"");
}

TEST(MetricsDeathTest, NamesFollowPrometheusRules) {
  MetricsRegistry registry;
  EXPECT_DEATH(registry.AddCounter("baton_a", "A."), "end in _total");
  EXPECT_DEATH(registry.AddGauge("baton_a_total", "A."), "end in _total");
  EXPECT_DEATH(registry.AddGauge("baton_wait_ms", "A."), "ms is not a base unit");
  EXPECT_DEATH(registry.AddGauge("baton_arena_mib_free", "A."), "mib is not a base unit");
  EXPECT_DEATH(registry.AddGauge("baton_a", ""), "no help text");
}

}  // namespace
}  // namespace baton
