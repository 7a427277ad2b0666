#include "common/rpc/address.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

TEST(Address, ResolvesPlainAndDnsTargets) {
  EXPECT_EQ(*ResolveTarget("somewhere:1"), std::vector<std::string>{"somewhere:1"});
  EXPECT_EQ(*ResolveTarget("dns:///127.0.0.1:80"), std::vector<std::string>{"127.0.0.1:80"});
  EXPECT_EQ(ResolveTarget("dns:///127.0.0.1").status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(ResolveTarget("dns:///no-such-name.invalid:80").status().code(),
            StatusCode::kUnavailable);
}

}  // namespace
}  // namespace baton
