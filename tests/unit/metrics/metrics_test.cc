#include "common/metrics/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

TEST(MetricsDeathTest, ANameIsOfOneKind) {
  MetricsRegistry registry;
  registry.AddCounter("baton_a", "A.");
  EXPECT_DEATH(registry.AddGauge("baton_a", "A."), "declared as two kinds");
}

}  // namespace
}  // namespace baton
