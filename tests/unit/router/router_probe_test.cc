#include "router/router_probe.h"

#include <gtest/gtest.h>

namespace baton::router {
namespace {

TEST(RouterProbe, TimeLimitsOfClientsAreNoFailuresOfTheCluster) {
  MetricsRegistry metrics;
  RouterProbe probe(metrics);
  Outcome outcome;
  outcome.status = Status(StatusCode::kDeadlineExceeded, "late");
  outcome.own_deadline = true;
  probe.OnOutcome(outcome);
  probe.OnRejected(outcome.status);
  EXPECT_EQ(probe.requests_failed(), 0);
  EXPECT_NE(metrics.Serialize().find("baton_router_requests_total{outcome=\"deadline\"} 2"),
            std::string::npos);
  // The router's default is long: what it ends has met a fault.
  outcome.own_deadline = false;
  probe.OnOutcome(outcome);
  EXPECT_EQ(probe.requests_failed(), 1);
  EXPECT_EQ(probe.requests_total(), 3);
}

}  // namespace
}  // namespace baton::router
