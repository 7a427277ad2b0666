#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/e2e/cluster.h"
#include "tests/e2e/mpirun_command.h"

namespace baton {

// A cluster to which a test adds a worker that mpirun starts, with ranks on several hosts. The
// model is the real one (9 heads, 3 KV heads, 30 layers).
class HostClusterTest : public ClusterTest {
 protected:
  // The tokens of greedy and sampled requests, with short prompts and one of several chunks. Sets
  // served_by_.
  std::vector<std::vector<int32_t>> Answers();

  // Adds the worker "group" to the running cluster, which then has `members` workers, and waits
  // for it. `settings` go before those that every group has.
  void AddGroup(const HostRanks& place,
                int tensor,
                int pipeline,
                size_t members,
                std::vector<std::string> settings);

  // Drains decode-0 or prefill-0, so that the group serves in its place, checks the answers, and
  // ends the group.
  void ExpectGroupDecodes(const std::vector<std::vector<int32_t>>& expected);
  void ExpectGroupPrefills(const std::vector<std::vector<int32_t>>& expected);

  // The workers of the last answer.
  struct {
    std::string prefill;
    std::string decode;
  } served_by_;

 private:
  void EndGroup();

  std::unique_ptr<ChildProcess> group_;
};

}  // namespace baton
