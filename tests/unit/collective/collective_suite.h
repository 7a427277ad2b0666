#pragma once

#include <functional>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "common/collective/collective_options.h"
#include "kernels/collective.h"

namespace baton {

// What a test asks of the implementation: a group, and what each rank does in it.
struct GroupTest {
  int ranks = 2;
  std::vector<std::vector<int>> collectives;  // ranks of each
  CollectiveOptions options;
  size_t slot_bytes = 4096;
};

// What a rank of a test has: its number, the collectives in which it takes part (null: it does
// not), and the abort of its group.
struct TestRank {
  int rank = 0;
  std::vector<std::unique_ptr<Collective>> collectives;
  std::function<void(int rank, const char* message)> abort;
};

// Starts groups of one implementation for the tests. Failures of any rank fail the test.
class GroupRunner {
 public:
  virtual ~GroupRunner() = default;
  // The largest group that it starts.
  virtual int max_ranks() const = 0;
  // Whether a new group works after one that was aborted.
  virtual bool survives_abort() const = 0;
  // Runs `body` on every rank of a new group and returns when all have ended.
  virtual void Run(const GroupTest& test, const std::function<void(TestRank&)>& body) = 0;
};

// Tests that every implementation passes.
class CollectiveSuite : public testing::TestWithParam<GroupRunner* (*)()> {
 protected:
  GroupRunner& runner() const { return *GetParam()(); }
};

// Tests after which the group is broken, for implementations whose groups start with each test.
class CollectiveFailureSuite : public CollectiveSuite {};

}  // namespace baton
