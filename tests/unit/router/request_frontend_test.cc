#include "router/frontend/request_frontend.h"

#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "router/loop/core_loop.h"
#include "tests/unit/router/frontend_harness.h"

namespace baton::router {
namespace {

constexpr auto kLimit = std::chrono::seconds(60);

// Records what it is told.
class Recorder final : public GenerationObserver {
 public:
  void OnDelta(GenerationDelta delta) override { deltas_.push_back(std::move(delta)); }
  void OnEnd(GenerationEnd end) override { end_.set_value(std::move(end)); }
  std::future<GenerationEnd> end() { return end_.get_future(); }
  // To be read after the end.
  const std::vector<GenerationDelta>& deltas() const { return deltas_; }

 private:
  std::vector<GenerationDelta> deltas_;
  std::promise<GenerationEnd> end_;
};

// The worker does not know stop strings, so it sends more tokens until it is told.
TEST(RequestFrontendTest, TheDeltaWithASamplesFinishReasonIsItsLast) {
  FrontendHarness harness;
  GenerationRequest request;
  request.input = std::string("x");
  request.samples = 2;
  request.stop = {"b"};
  const auto recorder = std::make_shared<Recorder>();
  std::future<GenerationEnd> end = recorder->end();
  const DispatchCommand dispatch = harness.Start(std::move(request), recorder);
  int32_t index = 0;
  for (const std::string letters : {"a", "bcd"}) {  // the letters of a report arrive together
    WorkerReport report;
    for (const char letter : letters) {
      for (int32_t sample = 0; sample < 2; ++sample) {
        TokenOutput token;
        token.id = dispatch.request.id;
        token.epoch = dispatch.request.epoch;
        token.sample = sample;
        token.index = index;
        token.token.token = static_cast<TokenId>(sample == 0 ? letter : letter + 5);
        if (sample == 1 && letter == 'd') token.finish = FinishReason::kLength;
        report.tokens.push_back(token);
      }
      ++index;
    }
    harness.Report(std::move(report));
  }

  ASSERT_EQ(end.wait_for(kLimit), std::future_status::ready);
  EXPECT_EQ(end.get().status, OkStatus());
  std::vector<std::string> texts(2);
  std::vector<std::string> tokens(2);
  std::vector<FinishReason> finishes(2, FinishReason::kNone);
  for (const GenerationDelta& delta : recorder->deltas()) {
    EXPECT_EQ(finishes[delta.sample], FinishReason::kNone) << "sample " << delta.sample;
    texts[delta.sample] += delta.text;
    tokens[delta.sample].append(delta.tokens.begin(), delta.tokens.end());
    finishes[delta.sample] = delta.finish;
  }
  EXPECT_EQ(texts, (std::vector<std::string>{"a", "fghi"}));
  EXPECT_EQ(tokens, (std::vector<std::string>{"ab", "fghi"}));
  EXPECT_EQ(finishes, (std::vector{FinishReason::kStop, FinishReason::kLength}));
  EXPECT_TRUE(harness.frontend().Drain(kLimit));
  harness.frontend().Stop();
}

}  // namespace
}  // namespace baton::router
