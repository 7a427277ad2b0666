#include "common/worker/kv_control_wire.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

TEST(FirstTokens, RoundTripAndMalformedBytes) {
  std::vector<SampledToken> tokens = {{5, -0.5f, {{5, -0.5f}, {9, -1.5f}}}, {7, 0, {}}};
  const std::string payload = EncodeFirstTokens(tokens);
  const StatusOr<std::vector<SampledToken>> back = DecodeFirstTokens(payload);
  ASSERT_TRUE(back.ok()) << back.status();
  ASSERT_EQ(back->size(), 2u);
  EXPECT_EQ((*back)[0].token, 5);
  EXPECT_EQ((*back)[0].top[1].token, 9);
  EXPECT_EQ((*back)[0].top[1].logprob, -1.5f);
  EXPECT_EQ((*back)[1].token, 7);
  EXPECT_FALSE(DecodeFirstTokens("\xff\xff\xff garbage").ok());
  for (size_t cut = 1; cut < payload.size(); ++cut) {
    (void)DecodeFirstTokens(payload.substr(0, cut));  // must not crash
  }
}

}  // namespace
}  // namespace baton
