#include <signal.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <iterator>
#include <regex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/e2e/mpirun_command.h"
#include "tests/fault/fault_cluster.h"

// One rank of a worker dies or hangs while requests run on two prefill and two decode workers.
namespace baton {
namespace {

constexpr RankCounts kThreeTensor = {.tensor_parallel = 3, .pipeline_parallel = 1};
constexpr RankCounts kTwoStages = {.tensor_parallel = 1, .pipeline_parallel = 2};
constexpr Duration kGone = std::chrono::seconds(60);
const HostRanks kOneHost = {.ranks = 3, .hosts = ""};
const HostRanks kTwoHosts = {.ranks = 3, .hosts = "hosta:2,hostb:1"};

// The processes whose parent is `parent`.
std::vector<pid_t> ChildrenOf(pid_t parent) {
  std::vector<pid_t> children;
  std::ifstream file(fmt::format("/proc/{}/task/{}/children", parent, parent));
  for (pid_t child = 0; file >> child;) children.push_back(child);
  return children;
}

// False also for a process that has ended and that its parent has not reaped, because the parent is
// stopped.
bool Runs(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string text{std::istreambuf_iterator<char>(file), {}};
  const size_t name = text.rfind(')');
  return name != std::string::npos && text.compare(name, 3, ") Z") != 0;
}

// The processes of the program `name` below `parent`.
std::vector<pid_t> DescendantsOf(pid_t parent, const std::string& name) {
  std::vector<pid_t> found;
  for (const pid_t child : ChildrenOf(parent)) {
    std::ifstream file(fmt::format("/proc/{}/comm", child));
    std::string comm;
    std::getline(file, comm);
    if (comm == name) found.push_back(child);
    for (const pid_t further : DescendantsOf(child, name)) found.push_back(further);
  }
  return found;
}

// Waits until none of `processes` runs.
void ExpectGone(const std::vector<pid_t>& processes) {
  const Time deadline = SteadyClock().Now() + kGone;
  while (std::ranges::any_of(processes, Runs) && SteadyClock().Now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_TRUE(std::ranges::none_of(processes, Runs)) << "a rank outlives its group";
}

class RankFaultTest : public FaultTest {
 protected:
  // Fewer than in other tests of faults, because a worker of three ranks on two processors is slow.
  int requests() const override { return 16; }

  // The ranks that end because of the killed one are not told as causes.
  void ExpectCauseOnly(const std::string& worker, size_t rank) {
    const std::string cause = fmt::format("rank {} was ended by signal 9: the group ends", rank);
    std::istringstream log(LogOf(worker));
    int told = 0;
    for (std::string line; std::getline(log, line);) {
      if (!line.ends_with(": the group ends")) continue;
      ++told;
      EXPECT_TRUE(line.ends_with(cause)) << line;
    }
    EXPECT_EQ(told, 1) << LogOf(worker);
  }

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
    ExpectGone(followers);
    if (signal == SIGKILL && rank > 0) ExpectCauseOnly(worker, rank);
    std::vector<std::string> living = {"prefill-0", "prefill-1", "decode-0", "decode-1"};
    std::erase(living, worker);
    ExpectNoLeaks(living);
    SetRanks({}, {});
  }

  // Lets mpirun start a decode worker of three ranks, and does `harm` to it while it computes. Then
  // all of its ranks must end, and every request must get the tokens of an undisturbed worker.
  void CheckMpirunLoss(const HostRanks& place,
                       int step_limit,
                       const std::function<void(pid_t)>& harm) {
    Undisturbed();
    StartCluster(2, 1);
    const std::vector<std::string> settings = {
        "worker_id=group",
        "engine.tensor_parallel=3",
        "engine.threads=1",
        "engine.kv_memory_mib=128",
        fmt::format("engine.step_limit_seconds={}", step_limit),
        "kv_listen=127.0.0.1:0",
        "security.cluster_secret_file=" + cluster().secret_file(),
        fmt::format("routers=[\"{}\"]", cluster().router().addresses.at("workers"))};
    auto group = ChildProcess::Start({place.hosts.empty() ? MpirunCommand(place.ranks, settings)
                                                          : MpirunCommand(place, settings),
                                      ""});
    ASSERT_TRUE(group.ok()) << group.status();
    const Status joined = cluster().WaitJoined(4, kStartLimit);
    ASSERT_TRUE(joined.ok()) << joined;
    const std::vector<pid_t> processes = DescendantsOf((*group)->pid(), "baton-decode");
    ASSERT_EQ(processes.size(), 3U);
    const Answers answers = RunAll([&] {
      AwaitSequences("group");
      harm((*group)->pid());
    });
    ExpectEqual(answers);
    ExpectDisturbed();
    ExpectGone(processes);
    ExpectNoLeaks({"prefill-0", "prefill-1", "decode-0"});
    (*group)->Signal(SIGKILL);
  }

  // Sends `signal` to the rank of hostb, the second host.
  static void SignalOnAnotherHost(pid_t mpirun, int signal) {
    const std::vector<pid_t> daemons = DescendantsOf(mpirun, "orted");
    ASSERT_EQ(daemons.size(), 2U);
    for (const pid_t daemon : daemons) {
      const std::vector<pid_t> ranks = DescendantsOf(daemon, "baton-decode");
      if (ranks.size() == 1) ::kill(ranks.front(), signal);
    }
  }

  // Waits until the router knows that the worker computes a sequence.
  void AwaitSequences(const std::string& worker) {
    const std::regex running(worker + " .*ready +[1-9]");
    const Time deadline = SteadyClock().Now() + kGone;
    while (!std::regex_search(RunTool({"status"}).output, running)) {
      ASSERT_LT(SteadyClock().Now(), deadline) << worker << " has computed no sequence";
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
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

TEST_F(RankFaultTest, AStoppedFollowerOfAPrefillWorker) {
  CheckLoss(kThreeTensor, {}, "prefill-1", 2, SIGSTOP);
}

TEST_F(RankFaultTest, AKilledMpirun) {
  CheckMpirunLoss(kOneHost, 15, [](pid_t mpirun) { ::kill(mpirun, SIGKILL); });
}

// The ranks need no mpirun while they serve, so the requests that end within the limit stay.
TEST_F(RankFaultTest, AStoppedMpirun) {
  CheckMpirunLoss(kOneHost, 1, [](pid_t mpirun) { ::kill(mpirun, SIGSTOP); });
}

TEST_F(RankFaultTest, AKilledRankOnAnotherHost) {
  CheckMpirunLoss(kTwoHosts, 15, [](pid_t mpirun) { SignalOnAnotherHost(mpirun, SIGKILL); });
}

TEST_F(RankFaultTest, AStoppedRankOnAnotherHost) {
  CheckMpirunLoss(kTwoHosts, 15, [](pid_t mpirun) { SignalOnAnotherHost(mpirun, SIGSTOP); });
}

TEST_F(RankFaultTest, AKilledMpirunOfAGroupOnTwoHosts) {
  CheckMpirunLoss(kTwoHosts, 15, [](pid_t mpirun) { ::kill(mpirun, SIGKILL); });
}

// mpirun's own process on another host: the ranks there have no parent any more.
TEST_F(RankFaultTest, AKilledDaemonOnAnotherHost) {
  CheckMpirunLoss(kTwoHosts, 15, [](pid_t mpirun) {
    const std::vector<pid_t> daemons = DescendantsOf(mpirun, "orted");
    ASSERT_EQ(daemons.size(), 2U);
    ::kill(daemons.back(), SIGKILL);
  });
}

TEST_F(RankFaultTest, AStoppedLeaderOfAPrefillWorker) {
  CheckLoss(kTwoStages, {}, "prefill-0", 0, SIGSTOP);
}

TEST_F(RankFaultTest, AStoppedLeaderOfADecodeWorker) {
  CheckLoss({}, kTwoStages, "decode-0", 0, SIGSTOP);
}

}  // namespace
}  // namespace baton
