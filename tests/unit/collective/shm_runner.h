#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>

#include "common/collective/group_memory.h"
#include "tests/unit/collective/collective_suite.h"

namespace baton {

// The layout of the group of `test`.
GroupLayout LayoutOf(const GroupTest& test);

// Rank `rank` of a group over `memory`.
TestRank MakeTestRank(GroupMemory& memory, int rank, const GroupTest& test);

// Starts a process that opens the group's memory from a descriptor and runs `body` as rank `rank`.
// Its exit status is 0 when the body had no failures. After 60 s the system ends it.
pid_t StartRank(const GroupMemory& memory,
                int rank,
                const GroupTest& test,
                const std::function<void(TestRank&)>& body);

// Waits for the end of a process; returns its status as waitpid does.
int WaitForExit(pid_t pid);

// Groups of threads of this process that share one GroupMemory.
GroupRunner* ThreadRunner();
// Groups of processes.
GroupRunner* ProcessRunner();

}  // namespace baton
