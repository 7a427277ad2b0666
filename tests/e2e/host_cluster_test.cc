#include "tests/e2e/host_cluster.h"

#include <filesystem>
#include <string>
#include <vector>

// Workers whose ranks are on several hosts, which share no memory. All hosts have the loopback
// address.
namespace baton {
namespace {

const std::vector<std::string> kListen = {"kv_listen=127.0.0.1:0"};

TEST_F(HostClusterTest, AnswersDoNotDependOnTheHostsOfTheRanks) {
  ASSERT_TRUE(std::filesystem::exists(kMpirun))
      << "openmpi-bin is missing: ./dev setup installs it";
  StartCluster(1, 1, {"transfer.require_transport=tcp"});
  const auto expected = Answers();
  ASSERT_EQ(served_by_.decode, "decode-0");

  // Ranks 0 and 1 share memory, rank 2 is alone.
  AddGroup({.ranks = 3, .hosts = "hosta:2,hostb:1"}, 3, 1, 3, kListen);
  ExpectGroupDecodes(expected);
}

// The KV of each stage goes from the stage's own host.
TEST_F(HostClusterTest, StagesOnTwoHostsHandOff) {
  StartCluster(1, 1, {"transfer.require_transport=tcp"});
  const auto expected = Answers();
  // Without the prompts in the prefix cache of decode-0.
  StartCluster(1, 1, {"transfer.require_transport=tcp"});
  AddGroup({.ranks = 2, .hosts = "hosta:1,hostb:1", .program = "baton-prefill"}, 1, 2, 3, kListen);
  ExpectGroupPrefills(expected);
}

}  // namespace
}  // namespace baton
