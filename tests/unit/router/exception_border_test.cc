// An exception ends the job or request that threw it, and nothing else.
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "router/frontend/fair_threads.h"
#include "router/loop/core_loop.h"
#include "router/loop/keyed_threads.h"
#include "tests/unit/router/frontend_harness.h"

namespace baton::router {
namespace {

using ::testing::HasSubstr;

constexpr auto kLimit = std::chrono::seconds(60);

TEST(ExceptionBorderTest, ThreadsGoOnAfterAnException) {
  KeyedThreads keyed("keyed", 1);
  FairThreads fair("fair", 1);
  std::promise<void> keyed_ran;
  std::promise<void> fair_ran;
  keyed.Post({{1, [] { throw std::runtime_error("thrown by the test"); }},
              {1, [&] { keyed_ran.set_value(); }}});
  fair.Post("client", 1, [] { throw 5; });  // NOLINT: not a std::exception
  fair.Post("client", 1, [&] { fair_ran.set_value(); });
  EXPECT_EQ(keyed_ran.get_future().wait_for(kLimit), std::future_status::ready);
  EXPECT_EQ(fair_ran.get_future().wait_for(kLimit), std::future_status::ready);
}

// Throws in every callback, like an observer that fails to write.
class Thrower final : public GenerationObserver {
 public:
  void OnDelta(GenerationDelta) override { throw std::runtime_error("thrown by the test"); }
  void OnEnd(GenerationEnd end) override {
    end_.set_value(std::move(end));
    throw std::runtime_error("thrown by the test");
  }
  std::future<GenerationEnd> end() { return end_.get_future(); }

 private:
  std::promise<GenerationEnd> end_;
};

TEST(ExceptionBorderTest, ARequestWhoseAnswerThrowsEndsAtItsClientAndAtItsWorker) {
  FrontendHarness harness;
  GenerationRequest request;
  request.input = std::string("x");
  const auto thrower = std::make_shared<Thrower>();
  std::future<GenerationEnd> end = thrower->end();
  const DispatchCommand dispatch = harness.Start(std::move(request), thrower);
  WorkerReport report;
  TokenOutput token;
  token.id = dispatch.request.id;
  token.epoch = dispatch.request.epoch;
  token.token.token = 'a';
  report.tokens.push_back(token);
  harness.Report(std::move(report));

  ASSERT_EQ(end.wait_for(kLimit), std::future_status::ready);
  const GenerationEnd ended = end.get();
  EXPECT_EQ(ended.status.code(), StatusCode::kInternal);
  EXPECT_THAT(std::string(Message(ended.status)), HasSubstr("its log says why"));
  EXPECT_EQ(harness.worker().cancelled().wait_for(kLimit), std::future_status::ready);
  EXPECT_TRUE(harness.frontend().Drain(kLimit)) << "it counts as running";
  harness.frontend().Stop();
}

// After an exception the state of the core is unknown.
TEST(ExceptionBorderDeathTest, TheCoreEndsTheProcessAndSaysWhy) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_DEATH(
      {
        MetricsRegistry metrics;
        RouterProbe probe(metrics);
        const SteadyClock clock;
        CoreLoop core(CoreOptions{}, clock, probe);
        core.Post([](RouterCore&, Time) { throw std::runtime_error("thrown by the test"); });
        (void)core.Query([](RouterCore&, Time) { return 0; });
      },
      "router-core ends by an exception: thrown by the test");
}

}  // namespace
}  // namespace baton::router
