#include "cli/verification.h"

#include <set>

#include <gmock/gmock.h>

namespace baton {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

WorkerSummary Worker(const std::string& id,
                     const std::string& roles,
                     const std::string& state = "ready") {
  WorkerSummary worker;
  worker.id = id;
  worker.roles = roles;
  worker.state = state;
  return worker;
}

TEST(VerificationTest, TheRunsDifferAndUseEveryDecodeWorker) {
  const auto plan = VerificationPlan::Make({Worker("d0", "decode"),
                                            Worker("d1", "decode"),
                                            Worker("d2", "decode"),
                                            Worker("d3", "decode", "draining"),
                                            Worker("p0", "prefill"),
                                            Worker("p1", "prefill")});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_THAT(plan->left_out(), ElementsAre("d3 (draining)"));
  std::set<std::string> used;
  for (size_t i = 0; i < plan->decode_workers(); ++i) {
    const auto [first, second] = plan->Runs(i);
    EXPECT_NE(first.decode, second.decode) << i;
    EXPECT_NE(first.prefill, second.prefill) << i;
    used.insert({first.decode, second.decode});
  }
  EXPECT_THAT(used, ElementsAre("d0", "d1", "d2"));
}

TEST(VerificationTest, AHandOffIsComparedWithServingAloneWhenThereIsNoOtherWay) {
  const auto plan = VerificationPlan::Make({Worker("d0", "decode"), Worker("p0", "prefill")});
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->Runs(5).first, (RunWorkers{"p0", "d0"}));
  EXPECT_EQ(plan->Runs(5).second, (RunWorkers{"", "d0"}));
}

TEST(VerificationTest, AUnifiedWorkerNeverHasBothParts) {
  const auto plan =
      VerificationPlan::Make({Worker("u0", "prefill+decode"), Worker("u1", "prefill+decode")});
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->Runs(0).first, (RunWorkers{"u1", "u0"}));
  EXPECT_EQ(plan->Runs(0).second, (RunWorkers{"u0", "u1"}));
}

TEST(VerificationTest, OneWayToServeIsAnError) {
  const auto alone = VerificationPlan::Make({Worker("u0", "prefill+decode")});
  EXPECT_THAT(std::string(Message(alone.status())), HasSubstr("needs a second worker"));
  const auto none = VerificationPlan::Make({Worker("p0", "prefill")});
  EXPECT_THAT(std::string(Message(none.status())), HasSubstr("no decode worker is ready"));
}

TEST(VerificationTest, TheFirstDifferenceIsFound) {
  const PinnedAnswer answer{{1, 2, 3}, "stop"};
  EXPECT_EQ(DifferenceOf(answer, answer), std::nullopt);
  EXPECT_EQ(DifferenceOf(answer, {{1, 9, 8}, "stop"}), "token 1: 2 / 9");
  EXPECT_EQ(DifferenceOf(answer, {{1, 2}, "stop"}), "token 2: 3 / end");
  EXPECT_EQ(DifferenceOf({{1, 2}, "stop"}, answer), "token 2: end / 3");
  EXPECT_EQ(DifferenceOf(answer, {{1, 2, 3}, "length"}), "end: stop / length");
}

TEST(VerificationTest, TheTableHasARowForEachTwoPairs) {
  const std::pair<RunWorkers, RunWorkers> across{{"p0", "d0"}, {"p0", "d1"}};
  const std::pair<RunWorkers, RunWorkers> alone{{"p0", "d0"}, {"", "d0"}};
  const std::string table = FormatVerification(
      {{across, {}}, {alone, {}}, {across, "token 4: 1 / 2"}, {across, "token 5: 1 / 2"}});
  EXPECT_THAT(table,
              AllOf(HasSubstr("p0 → d1     3         1      2          request 2, token 4: 1 / 2"),
                    HasSubstr("d0 alone"),
                    Not(HasSubstr("token 5"))));
}

}  // namespace
}  // namespace baton
