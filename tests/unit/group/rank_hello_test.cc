#include "common/group/rank_hello.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

RankHello Hello(int rank) {
  return {.rank = rank,
          .program = "baton-decode 0.1.0",
          .settings = "engine:\n  threads: 1\n",
          .fingerprint = "00ff",
          .weights = {UINT64_MAX, 7},
          .device = "cpu",
          .blocks = 12};
}

TEST(RankHelloTest, IsReadAsItWasWritten) {
  const auto read = RankHello::FromJson(Hello(2).ToJson());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->rank, 2);
  EXPECT_EQ(read->settings, "engine:\n  threads: 1\n");
  EXPECT_EQ(read->blocks, 12);
  EXPECT_EQ(read->weights, (Hash128{UINT64_MAX, 7}));
  EXPECT_TRUE(CheckSameGroup(Hello(0), *read).ok());
}

TEST(RankHelloTest, DifferencesNameTheRankAndBothSides) {
  RankHello other = Hello(2);
  other.settings = "engine:\n  threads: 2\n";
  EXPECT_EQ(Message(CheckSameGroup(Hello(0), other)),
            "rank 2 has the setting '  threads: 2'; rank 0 has '  threads: 1'");
  other = Hello(3);
  other.fingerprint = "1234";
  EXPECT_EQ(Message(CheckSameGroup(Hello(0), other)),
            "rank 3 has the model fingerprint '1234'; rank 0 has '00ff'");
  other = Hello(1);
  other.program = "baton-decode 0.2.0";
  EXPECT_EQ(Message(CheckSameGroup(Hello(0), other)),
            "rank 1 has the program 'baton-decode 0.2.0'; rank 0 has 'baton-decode 0.1.0'");
}

TEST(RankHelloTest, OtherTextIsAnError) {
  for (const char* text : {"", "{", "[]", "{}", R"({"rank": "a"})"}) {
    EXPECT_EQ(RankHello::FromJson(text).status().code(), StatusCode::kInvalidArgument) << text;
  }
}

}  // namespace
}  // namespace baton
