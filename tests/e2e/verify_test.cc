// Checks of the tokens in a cluster of real processes: replays while serving, and `baton verify`.
#include <string>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "tests/e2e/cluster.h"

namespace baton {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class VerifyTest : public ClusterTest {};

TEST_F(VerifyTest, ReplaysOfAllRequestsHaveEqualTokens) {
  StartCluster(2, 2, {}, {"replay.sample=1"});
  constexpr int kRequests = 6;
  for (int i = 0; i < kRequests; ++i) {
    GenerateCall call;
    call.text = i == 0 ? LongPromptOf(i) : PromptOf(i);
    call.max_tokens = 24;
    call.temperature = i % 2 == 0 ? 0.0F : 1.0F;  // without a seed: the router chooses one
    if (i == 3) call.stop = {"e"};
    Ask(call);
  }
  EXPECT_TRUE(WaitMetric("router", "baton_replay_checked_total", kRequests));
  EXPECT_EQ(Metric("router", "baton_replay_mismatches_total"), 0);
  const auto status = nlohmann::json::parse(RunTool({"status", "--json"}).output);
  EXPECT_EQ(status["requests_total"], std::to_string(kRequests)) << "replays are not counted";
  EXPECT_THAT(RunTool({"status"}).output,
              HasSubstr("replays of 100%: 6 equal, 0 different, 0 running, 0 waiting"));
  ExpectNoLeaks({"prefill-0", "prefill-1", "decode-0", "decode-1"});
}

TEST_F(VerifyTest, TheToolComparesTheWorkersOfACluster) {
  StartCluster(1, 2);
  const ToolResult equal = RunTool({"verify", "--requests", "4", "--max-tokens", "16"});
  EXPECT_EQ(equal.status, 0) << equal.output;
  EXPECT_THAT(equal.output,
              AllOf(HasSubstr("prefill-0 → decode-0"),
                    HasSubstr("prefill-0 → decode-1"),
                    HasSubstr("DIFFERENT")));
  EXPECT_GT(Metric("decode-0", "baton_output_tokens_total"), 0);
  EXPECT_GT(Metric("decode-1", "baton_output_tokens_total"), 0);
  EXPECT_EQ(RunToolAlone({"verify", "--admin", server()}).status, 2) << "the clients' port";
  EXPECT_EQ(RunTool({"verify", "--file", "/nowhere"}).status, 2);
  EXPECT_EQ(RunTool({"verify", "--requests", "x"}).status, 2);
  ExpectNoLeaks({"prefill-0", "decode-0", "decode-1"});
}

}  // namespace
}  // namespace baton
