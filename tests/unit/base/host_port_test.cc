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

TEST(HostPort, TheHostOfAPeerIsThatOfAllItsConnections) {
  for (const char* name : {"10.0.0.1:443", "ipv4:10.0.0.1:443", "ipv4:10.0.0.1:9", "10.0.0.1"}) {
    EXPECT_EQ(HostOfPeer(name), "10.0.0.1") << name;
  }
  for (const char* name : {"[fe80::1]:443", "ipv6:[fe80::1]:443", "ipv6:%5Bfe80::1%5D:9"}) {
    EXPECT_EQ(HostOfPeer(name), "[fe80::1]") << name;
  }
  EXPECT_EQ(HostOfPeer("fe80::1"), "fe80::1");
  EXPECT_EQ(HostOfPeer(""), "");
}

}  // namespace
}  // namespace baton
