#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/fault/fault_cluster.h"

// One rank of a worker dies or hangs while 32 requests run on two prefill and two decode workers.
namespace baton {
namespace {

constexpr RankCounts kThreeTensor = {.tensor_parallel = 3, .pipeline_parallel = 1};
constexpr RankCounts kTwoStages = {.tensor_parallel = 1, .pipeline_parallel = 2};
constexpr Duration kGone = std::chrono::seconds(60);

// The processes whose parent is `parent`.
std::vector<pid_t> ChildrenOf(pid_t parent) {
  std::vector<pid_t> children;
  std::ifstream file(fmt::format("/proc/{}/task/{}/children", parent, parent));
  for (pid_t child = 0; file >> child;) children.push_back(child);
  return children;
}

bool Runs(pid_t pid) {
  return std::filesystem::exists(fmt::format("/proc/{}", pid));
}

class RankFaultTest : public FaultTest {
 protected:
  // Sends `signal` to rank `rank` of `worker` while it computes. Then all its processes must end,
  // and every request must get the tokens of an undisturbed worker.
  void CheckLoss(const RankCounts& prefill,
                 const RankCounts& decode,
                 const std::string& worker,
                 size_t rank,
                 int signal) {
    Undisturbed();
    SetRanks(prefill, decode);
    StartCluster(2, 2, {"engine.step_limit_seconds=15"});
    const pid_t leader = process(worker).pid();
    const std::vector<pid_t> followers = ChildrenOf(leader);
    ASSERT_GE(followers.size() + 1, rank + 1);
    const Answers answers = RunAll([&] {
      WaitBusy({worker});
      ::kill(rank == 0 ? leader : followers[rank - 1], signal);
    });
    ExpectEqual(answers);
    ExpectDisturbed();
    EXPECT_NE(process(worker).WaitExit(kGone), std::optional<int>());
    const Time deadline = SteadyClock().Now() + kGone;
    while (std::ranges::any_of(followers, Runs) && SteadyClock().Now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    EXPECT_TRUE(std::ranges::none_of(followers, Runs)) << "a rank outlives its group";
    std::vector<std::string> living = {"prefill-0", "prefill-1", "decode-0", "decode-1"};
    std::erase(living, worker);
    ExpectNoLeaks(living);
    SetRanks({}, {});
  }
};

TEST_F(RankFaultTest, AKilledFollowerOfADecodeWorker) {
  CheckLoss({}, kThreeTensor, "decode-0", 2, SIGKILL);
}

TEST_F(RankFaultTest, AKilledLeaderOfAPrefillWorker) {
  CheckLoss(kThreeTensor, {}, "prefill-0", 0, SIGKILL);
}

TEST_F(RankFaultTest, AKilledStageOfAPrefillWorker) {
  CheckLoss(kTwoStages, kTwoStages, "prefill-1", 1, SIGKILL);
}

TEST_F(RankFaultTest, AStoppedFollowerOfADecodeWorker) {
  CheckLoss({}, kTwoStages, "decode-1", 1, SIGSTOP);
}

TEST_F(RankFaultTest, AStoppedLeaderOfADecodeWorker) {
  CheckLoss({}, kTwoStages, "decode-0", 0, SIGSTOP);
}

}  // namespace
}  // namespace baton
