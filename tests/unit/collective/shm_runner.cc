#include "tests/unit/collective/shm_runner.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <thread>
#include <utility>

#include "common/base/check.h"
#include "common/collective/shm_collective.h"

namespace baton {
namespace {

std::unique_ptr<GroupMemory> MakeMemory(const GroupTest& test) {
  auto memory = GroupMemory::Create(LayoutOf(test));
  BATON_CHECK(memory.ok(), "{}", Message(memory.status()));
  return *std::move(memory);
}

class Threads final : public GroupRunner {
 public:
  int max_ranks() const override { return 64; }
  bool survives_abort() const override { return true; }
  void Run(const GroupTest& test, const std::function<void(TestRank&)>& body) override {
    const auto memory = MakeMemory(test);
    std::vector<std::jthread> threads;
    for (int rank = 0; rank < test.ranks; ++rank) {
      threads.emplace_back([&, rank] {
        TestRank own = MakeTestRank(*memory, rank, test);
        body(own);
      });
    }
  }
};

class Processes final : public GroupRunner {
 public:
  int max_ranks() const override { return 64; }
  bool survives_abort() const override { return true; }
  void Run(const GroupTest& test, const std::function<void(TestRank&)>& body) override {
    const auto memory = MakeMemory(test);
    std::vector<pid_t> pids;
    for (int rank = 0; rank < test.ranks; ++rank) {
      pids.push_back(StartRank(*memory, rank, test, body));
    }
    for (const pid_t pid : pids) EXPECT_EQ(WaitForExit(pid), 0);
  }
};

}  // namespace

GroupLayout LayoutOf(const GroupTest& test) {
  GroupLayout layout = {.ranks = test.ranks, .collectives = {}};
  for (const std::vector<int>& ranks : test.collectives) {
    layout.collectives.push_back({.ranks = ranks, .slot_bytes = test.slot_bytes});
  }
  return layout;
}

TestRank MakeTestRank(GroupMemory& memory, int rank, const GroupTest& test) {
  TestRank made = {.rank = rank, .collectives = {}, .abort = {}};
  for (size_t i = 0; i < test.collectives.size(); ++i) {
    made.collectives.push_back(nullptr);
    const std::vector<int>& ranks = test.collectives[i];
    if (std::find(ranks.begin(), ranks.end(), rank) == ranks.end()) continue;
    auto collective = ShmCollective::Create(memory, i, rank, test.options);
    BATON_CHECK(collective.ok(), "{}", Message(collective.status()));
    made.collectives.back() = *std::move(collective);
  }
  made.abort = [&memory](int blamed, const char* message) { memory.Abort(blamed, message); };
  return made;
}

pid_t StartRank(const GroupMemory& memory,
                int rank,
                const GroupTest& test,
                const std::function<void(TestRank&)>& body) {
  std::fflush(nullptr);
  const pid_t pid = ::fork();
  BATON_CHECK(pid >= 0, "fork failed");
  if (pid != 0) return pid;
  ::alarm(60);
  {
    auto own_memory = GroupMemory::Open(UniqueFd(::dup(memory.fd())), memory.layout());
    BATON_CHECK(own_memory.ok(), "{}", Message(own_memory.status()));
    TestRank own = MakeTestRank(**own_memory, rank, test);
    body(own);
  }
  std::fflush(nullptr);
  ::_exit(testing::Test::HasFailure() ? 1 : 0);
}

int WaitForExit(pid_t pid) {
  int status = -1;
  EXPECT_EQ(::waitpid(pid, &status, 0), pid);
  return status;
}

GroupRunner* ThreadRunner() {
  static Threads runner;
  return &runner;
}

GroupRunner* ProcessRunner() {
  static Processes runner;
  return &runner;
}

}  // namespace baton
