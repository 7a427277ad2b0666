#include <string>

#include <gmock/gmock.h>

#include "common/app/process_probe.h"
#include "common/worker/worker_probe.h"
#include "router/router_probe.h"
#include "tests/integration/router_service.h"
#include "tests/support/captured_stderr.h"
#include "tests/support/raw_http.h"

// Tests of a router's metrics, and that no metric name has two meanings.
namespace baton {
namespace {

using ::testing::HasSubstr;

TEST_F(RouterServiceTest, TheStatusTheMetricsAndTheLogTellThatRequestsWaitWhileNothingRuns) {
  CapturedStderr log;
  FakeWorker worker(WorkerOptions());
  const auto call = Begin(Ask("held"));
  const worker::v1::Dispatch dispatch = worker.AwaitDispatch();
  EXPECT_EQ(ClusterStatus().stalled_seconds(), 0);
  Await([&] { return ClusterStatus().stalled_seconds() >= 5; }, "a stall in the status");
  Await([&] { return router_->Metric("baton_router_stalled_seconds") >= 5; }, "a stall's metric");
  EXPECT_THAT(
      log.Text(),
      HasSubstr("requests wait, and nothing has run on any worker for 5 s; worker (ready)"));
  worker.Say(dispatch, 0, 0, "a", FinishReason::kLength);
  worker.Finish(dispatch);
  EXPECT_TRUE(call->ReadToEnd().ok());
  Await([&] { return ClusterStatus().stalled_seconds() == 0; }, "the end of the stall");
  Await([&] { return log.Text().find("requests run again") != std::string::npos; }, "its line");
}

TEST_F(RouterServiceTest, MetricsTellFaultsFromWhatClientsDid) {
  const auto ended = [&](const std::string& outcome) {
    return router_->Metric(fmt::format("baton_router_requests_total{{outcome=\"{}\"}}", outcome));
  };
  FakeWorker worker(WorkerOptions());
  const auto done = Begin(Ask("x", 2));
  const worker::v1::Dispatch served = worker.AwaitDispatch(0);
  for (const int sample : {0, 1}) {
    worker.Say(served, sample, 0, "a");
    done->ReadUntil(sample, "a");
    worker.Say(served, sample, 1, "b", FinishReason::kLength);
  }
  worker.Finish(served);
  ASSERT_TRUE(done->ReadToEnd().ok());

  v1::GenerateRequest invalid = Ask("x");
  invalid.mutable_sampling()->set_temperature(-1);
  EXPECT_EQ(StatusOf(invalid).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  v1::GenerateRequest unknown = Ask("x");
  unknown.set_model("other");
  EXPECT_EQ(StatusOf(unknown).error_code(), grpc::StatusCode::NOT_FOUND);
  v1::GenerateRequest bad_stop = Ask("x");
  bad_stop.add_stop("");
  EXPECT_EQ(StatusOf(bad_stop).error_code(), grpc::StatusCode::INVALID_ARGUMENT);

  const auto leaving = Begin(Ask("going"));
  worker.Say(worker.AwaitDispatch(1), 0, 0, "a");
  leaving->ReadUntil(0, "a");
  leaving->context.TryCancel();
  EXPECT_EQ(leaving->ReadToEnd().error_code(), grpc::StatusCode::CANCELLED);
  Await([&] { return ended("cancelled") == 1; }, "the cancel");

  const auto failing = Begin(Ask("x"));
  const worker::v1::Dispatch lost = worker.AwaitDispatch(2);
  worker::v1::ToRouter failure;
  failure.add_failed()->set_request_id(lost.request_id());
  failure.mutable_failed(0)->set_epoch(lost.epoch());
  failure.mutable_failed(0)->set_code(static_cast<int>(StatusCode::kInternal));
  worker.Send(std::move(failure));
  EXPECT_EQ(failing->ReadToEnd().error_code(), grpc::StatusCode::INTERNAL);

  v1::GenerateRequest hasty = Ask("x");
  hasty.set_timeout_ms(1);
  EXPECT_EQ(StatusOf(hasty).error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);

  EXPECT_EQ(ended("done"), 1);
  EXPECT_EQ(ended("deadline"), 1);
  EXPECT_EQ(ended("invalid"), 3);
  EXPECT_EQ(ended("failed"), 1);
  EXPECT_EQ(ended("refused"), 0);
  EXPECT_EQ(router_->Metric("baton_router_errors_total{code=\"INVALID_ARGUMENT\"}"), 2);
  EXPECT_EQ(router_->Metric("baton_router_errors_total{code=\"CANCELLED\"}"), 1);
  EXPECT_EQ(ClusterStatus().requests_total(), 7);
  EXPECT_EQ(ClusterStatus().requests_failed(), 1);
  EXPECT_EQ(router_->Metric("baton_router_request_seconds_count"), 1);
  EXPECT_EQ(router_->Metric("baton_router_itl_seconds_count"), 2)
      << "expected one interval for each of the two samples";
  EXPECT_GT(router_->Metric("baton_router_itl_seconds_sum"), 0);
}

// Such requests reach neither the front end nor the core.
TEST_F(RouterServiceTest, RequestsThatTheirApiRefusesAreCounted) {
  for (const std::string body : {"{", R"({"prompt": "a", "n": "two"})"}) {
    const HttpAnswer answer =
        HttpSend(router_->http(), PostRequest("/v1/completions", body), kCallLimit);
    EXPECT_EQ(answer.status, 400) << answer.body;
  }
  EXPECT_EQ(router_->Metric("baton_router_requests_total{outcome=\"invalid\"}"), 2);
  EXPECT_EQ(router_->Metric("baton_router_errors_total{code=\"INVALID_ARGUMENT\"}"), 2);
}

// The registry aborts the test when two probes declare the same name with different meanings.
TEST(MetricNamesTest, NoNameMeansTwoThings) {
  MetricsRegistry metrics;
  const router::RouterProbe router(metrics);
  const WorkerProbe worker(metrics);
  const ProcessProbe process(metrics);
  const std::string text = metrics.Serialize();
  for (const char* name : {"baton_router_requests_running 0",
                           "baton_worker_sequences_running 0",
                           "process_open_fds ",
                           "baton_build_info{"}) {
    EXPECT_THAT(text, HasSubstr(name));
  }
}

}  // namespace
}  // namespace baton
