#include "common/base/host_port.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

TEST(HostPort, ParsesHostsAndPorts) {
  EXPECT_EQ(ParseHostPort("localhost:7070")->ToString(), "localhost:7070");
  EXPECT_EQ(ParseHostPort("[::1]:0")->host, "::1");
  EXPECT_EQ(ParseHostPort("[::1]:0")->ToString(), "[::1]:0");
  EXPECT_EQ(ParseHostPort("10.0.0.1:65535")->port, 65535);
}

TEST(HostPort, NamesWhatIsWrong) {
  for (const char* bad : {"",
                          ":",
                          "host",
                          "host:",
                          ":70",
                          "host:65536",
                          "host:99999",
                          "host:-1",
                          "host:7x",
                          "::1:70",
                          "a:b:70"}) {
    const StatusOr<HostPort> parsed = ParseHostPort(bad);
    ASSERT_FALSE(parsed.ok()) << bad;
    EXPECT_EQ(parsed.status().code(), StatusCode::kInvalidArgument) << bad;
    EXPECT_NE(Message(parsed.status()).find(bad), std::string_view::npos) << bad;
  }
}

}  // namespace
}  // namespace baton
