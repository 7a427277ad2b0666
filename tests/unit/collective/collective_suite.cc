#include "tests/unit/collective/collective_suite.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <numeric>
#include <random>
#include <thread>

#include <gmock/gmock.h>

#include "common/base/clock.h"

namespace baton {
namespace {

using Bytes = std::vector<std::byte>;

std::vector<int> FirstRanks(int count) {
  std::vector<int> ranks(count);
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

GroupTest OneCollective(int ranks) {
  return {.ranks = ranks, .collectives = {FirstRanks(ranks)}, .options = {}, .slot_bytes = 4096};
}

// Byte `column` of row `row` in the call number `call`.
std::byte Expected(size_t call, size_t row, size_t column) {
  return static_cast<std::byte>((call * 131 + row * 31 + column * 7 + column / 251) % 253 + 1);
}

// Rows with a gap behind each. A rank knows the bytes begin … end - 1 of each row.
struct TestRows {
  TestRows(size_t call, size_t rows, size_t width, size_t gap, size_t begin, size_t end)
      : call_(call), width_(width), stride_(width + gap), bytes_(rows * (width + gap)) {
    for (size_t row = 0; row < rows; ++row) {
      for (size_t i = begin; i < end; ++i) bytes_[row * stride_ + i] = Expected(call, row, i);
    }
  }

  CollectiveRows view() {
    return {.data = bytes_.data(),
            .count = static_cast<int64_t>(bytes_.size() / stride_),
            .stride = stride_};
  }

  // Whether the rows have all bytes of all parts, and the gaps are as before.
  bool complete() const {
    for (size_t i = 0; i < bytes_.size(); ++i) {
      const size_t row = i / stride_;
      const size_t column = i % stride_;
      const std::byte expected = column < width_ ? Expected(call_, row, column) : std::byte{0};
      if (bytes_[i] != expected) return false;
    }
    return true;
  }

 private:
  size_t call_;
  size_t width_;
  size_t stride_;
  Bytes bytes_;
};

void CheckGather(Collective& group,
                 size_t call,
                 size_t rows,
                 size_t gap,
                 const std::vector<size_t>& ends,
                 bool to_all) {
  const int me = group.rank();
  TestRows bytes(call, rows, ends.back(), gap, me == 0 ? 0 : ends[me - 1], ends[me]);
  const Status status =
      to_all ? group.AllGather(bytes.view(), ends) : group.GatherToFirst(bytes.view(), ends);
  EXPECT_TRUE(status.ok()) << status;
  if (to_all || me == 0) {
    EXPECT_TRUE(bytes.complete()) << "call " << call << " rank " << me << ": " << rows
                                  << " rows of " << ends.back();
  }
}

// Parts of equal width.
std::vector<size_t> EvenEnds(int size, size_t width) {
  std::vector<size_t> ends;
  for (int i = 1; i <= size; ++i) ends.push_back(i * width);
  return ends;
}

// A value whose sum depends on the order of the additions.
float Addend(size_t call, size_t rank, size_t i) {
  const auto mixed =
      static_cast<uint32_t>((call * 7919 + rank * 104729 + i * 1299709) * 2654435761U);
  return std::ldexp(static_cast<float>(static_cast<int32_t>(mixed)),
                    static_cast<int>(mixed % 40) - 20);
}

void CheckAllReduce(Collective& group, size_t call, size_t count) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) {
    values[i] = Addend(call, static_cast<size_t>(group.rank()), i);
  }
  const Status status = group.AllReduce(values);
  EXPECT_TRUE(status.ok()) << status;
  size_t different = 0;
  for (size_t i = 0; i < count; ++i) {
    float sum = Addend(call, 0, i);
    for (int rank = 1; rank < group.size(); ++rank) {
      sum += Addend(call, static_cast<size_t>(rank), i);
    }
    if (std::bit_cast<uint32_t>(sum) != std::bit_cast<uint32_t>(values[i])) ++different;
  }
  EXPECT_EQ(different, 0U) << "of " << count << " on rank " << group.rank();
}

void CheckBroadcast(Collective& group, size_t call, size_t size) {
  Bytes bytes(size);
  for (size_t i = 0; i < size && group.rank() == 0; ++i) bytes[i] = Expected(call, 0, i);
  const Status status = group.BroadcastFromFirst(bytes);
  EXPECT_TRUE(status.ok()) << status;
  for (size_t i = 0; i < size; ++i)
    ASSERT_EQ(bytes[i], Expected(call, 0, i)) << i << " of " << size;
}

void CheckSend(Collective& group, size_t call, int from, int to, size_t size) {
  Bytes bytes(size);
  if (group.rank() == from) {
    for (size_t i = 0; i < size; ++i) bytes[i] = Expected(call, 0, i);
    const Status status = group.Send(to, bytes);
    EXPECT_TRUE(status.ok()) << status;
  } else if (group.rank() == to) {
    const Status status = group.Receive(from, bytes);
    EXPECT_TRUE(status.ok()) << status;
    for (size_t i = 0; i < size; ++i) {
      ASSERT_EQ(bytes[i], Expected(call, 0, i)) << i << " of " << size;
    }
  }
}

// Sizes around those of a slot of 4,096 bytes.
const std::vector<size_t> kSizes = {0, 1, 3, 8, 4095, 4096, 4097, 8192, 8193, 100003};

// A random sequence of calls, the same on all ranks of the group.
void RunRandomCalls(Collective& group, uint32_t seed, int calls, bool pauses) {
  std::mt19937 random(seed);
  const auto below = [&random](uint32_t n) { return random() % n; };
  std::mt19937 own_random(seed * 31 + group.rank());
  for (int call = 0; call < calls && !testing::Test::HasFailure(); ++call) {
    if (pauses && own_random() % 8 == 0) {
      std::this_thread::sleep_for(std::chrono::microseconds(own_random() % 300));
    }
    const size_t size = below(4) == 0 ? below(20000) : below(300);
    switch (below(5)) {
      case 0:
      case 1: {
        std::vector<size_t> ends = {0};
        for (int i = 0; i < group.size(); ++i)
          ends.push_back(ends.back() + below(3) * below(size + 1));
        ends.erase(ends.begin());
        if (ends.back() == 0) ends.back() = 1;
        const size_t rows = below(5);
        const size_t gap = below(2) * 5;
        CheckGather(group, call, rows, gap, ends, below(2) == 0);
        break;
      }
      case 2:
        CheckAllReduce(group, call, size);
        break;
      case 3:
        CheckBroadcast(group, call, size);
        break;
      default: {
        if (group.size() == 1) break;
        const int from = static_cast<int>(below(group.size()));
        const int to = static_cast<int>((from + 1 + below(group.size() - 1)) % group.size());
        CheckSend(group, call, from, to, size);
      }
    }
  }
}

TEST_P(CollectiveSuite, AllGatherOfEvenParts) {
  for (int ranks = 1; ranks <= std::min(3, runner().max_ranks()); ++ranks) {
    runner().Run(OneCollective(ranks), [](TestRank& rank) {
      Collective& group = *rank.collectives[0];
      EXPECT_EQ(group.rank(), rank.rank);
      size_t call = 0;
      for (const size_t size : kSizes) {
        if (size != 0) CheckGather(group, ++call, 1, 0, EvenEnds(group.size(), size), true);
        CheckGather(group, ++call, 0, 1, EvenEnds(group.size(), size), true);
      }
    });
  }
}

TEST_P(CollectiveSuite, AllGatherAndGatherOfUnevenPartsOfRowsWithGaps) {
  runner().Run(OneCollective(3), [](TestRank& rank) {
    Collective& group = *rank.collectives[0];
    const std::vector<std::vector<size_t>> ends = {
        {7, 7, 11}, {0, 5, 5}, {0, 0, 3}, {1, 2, 3}, {0, 9000, 9001}, {5000, 5000, 9100}};
    size_t call = 0;
    for (const auto& one : ends) {
      for (const size_t rows : {1, 2, 5, 33}) {
        for (const size_t gap : {0, 13}) {
          CheckGather(group, ++call, rows, gap, one, true);
          CheckGather(group, ++call, rows, gap, one, false);
        }
      }
    }
  });
}

TEST_P(CollectiveSuite, SumsAreAddedInTheOrderOfTheRanks) {
  for (int ranks = 2; ranks <= 3; ++ranks) {
    runner().Run(OneCollective(ranks), [](TestRank& rank) {
      size_t call = 0;
      for (const size_t count : kSizes) CheckAllReduce(*rank.collectives[0], ++call, count);
    });
  }
}

TEST_P(CollectiveSuite, TheSumKeepsNegativeZero) {
  runner().Run(OneCollective(2), [](TestRank& rank) {
    std::vector<float> values = {-0.0F};
    EXPECT_TRUE(rank.collectives[0]->AllReduce(values).ok());
    EXPECT_TRUE(std::signbit(values[0]));
  });
}

TEST_P(CollectiveSuite, BroadcastIsFromTheFirst) {
  runner().Run(OneCollective(3), [](TestRank& rank) {
    size_t call = 0;
    for (const size_t size : kSizes) CheckBroadcast(*rank.collectives[0], ++call, size);
  });
}

TEST_P(CollectiveSuite, SendAndReceiveBetweenAllPairs) {
  runner().Run(OneCollective(3), [](TestRank& rank) {
    Collective& group = *rank.collectives[0];
    size_t call = 0;
    for (const size_t size : kSizes) {
      for (int from = 0; from < group.size(); ++from) {
        for (int to = 0; to < group.size(); ++to) {
          if (from != to) CheckSend(group, ++call, from, to, size);
        }
      }
    }
  });
}

TEST_P(CollectiveSuite, TheOrderOfMembersIsTheOrderOfTheList) {
  GroupTest test = OneCollective(3);
  test.collectives = {{2, 0}, {1}};
  runner().Run(test, [](TestRank& rank) {
    EXPECT_EQ(rank.collectives[0] != nullptr, rank.rank != 1);
    EXPECT_EQ(rank.collectives[1] != nullptr, rank.rank == 1);
    if (rank.rank == 1) return CheckAllReduce(*rank.collectives[1], 1, 10);
    EXPECT_EQ(rank.collectives[0]->rank(), rank.rank == 2 ? 0 : 1);
    CheckBroadcast(*rank.collectives[0], 1, 10000);
  });
}

TEST_P(CollectiveSuite, RandomCalls) {
  for (int ranks = 2; ranks <= std::min(4, runner().max_ranks()); ++ranks) {
    runner().Run(OneCollective(ranks),
                 [](TestRank& rank) { RunRandomCalls(*rank.collectives[0], 7, 400, true); });
  }
}

// Rank 3 * stage + slice of 2 stages of 3 slices; with fewer ranks each slice is a stage.
TEST_P(CollectiveSuite, TensorAndPipelineGroupsRunSideBySide) {
  GroupTest test = OneCollective(6);
  test.collectives = {{0, 1, 2}, {3, 4, 5}, {0, 3}, {1, 4}, {2, 5}};
  if (runner().max_ranks() < 6) {
    test.ranks = 3;
    test.collectives = {{0, 1}, {1, 2}, {2, 0}};
  }
  runner().Run(test, [](TestRank& rank) {
    for (uint32_t step = 0; step < 30; ++step) {
      for (uint32_t i = 0; i < rank.collectives.size(); ++i) {
        Collective* const group = rank.collectives[i].get();
        if (group != nullptr) RunRandomCalls(*group, step * 10 + i, 5, false);
      }
    }
  });
}

// ---- failures

using testing::HasSubstr;

// Runs `call` on ranks 0 and 1 while rank 2 does not come.
void ExpectLate(GroupRunner& runner, const std::function<Status(Collective&)>& call) {
  GroupTest test = OneCollective(3);
  test.options.limit = std::chrono::milliseconds(200);
  test.options.ahead_bytes = size_t{1} << 20;
  runner.Run(test, [&call](TestRank& rank) {
    Collective& group = *rank.collectives[0];
    if (rank.rank == 2) {
      std::this_thread::sleep_for(std::chrono::milliseconds(600));
    } else {
      const Status status = call(group);
      EXPECT_FALSE(status.ok());
      EXPECT_THAT(Message(status), HasSubstr("rank 2 did not come within 200 ms"));
      EXPECT_TRUE(status.code() == StatusCode::kDeadlineExceeded ||
                  status.code() == StatusCode::kUnavailable)
          << status;
    }
    // The group is broken for everyone, also for the rank that comes late.
    std::vector<float> values(1);
    const Status later = group.AllReduce(values);
    EXPECT_EQ(later.code(), StatusCode::kUnavailable) << later;
    EXPECT_THAT(Message(later), HasSubstr("rank 2 did not come within 200 ms"));
  });
}

Status AllReduceOfThree(Collective& group) {
  std::vector<float> values(3);
  return group.AllReduce(values);
}

TEST_P(CollectiveFailureSuite, ARankThatNeverComesIsNamed) {
  ExpectLate(runner(), AllReduceOfThree);
}

TEST_P(CollectiveFailureSuite, ARankThatNeverReceivesIsNamed) {
  ExpectLate(runner(), [](Collective& group) {
    const Bytes bytes(group.bytes_ahead() + 1);
    return group.Send(2, bytes);
  });
}

TEST_P(CollectiveFailureSuite, AbortEndsWaitsOfEveryKind) {
  const std::vector<std::function<Status(Collective&)>> calls = {
      AllReduceOfThree,
      [](Collective& group) {
        std::array<std::byte, 3> bytes = {};
        const std::array<size_t, 3> ends = {1, 2, 3};
        return group.AllGather({bytes.data(), 1, 3}, ends);
      },
      [](Collective& group) {
        std::array<std::byte, 3> bytes = {};
        return group.Receive(2, bytes);
      },
      [](Collective& group) {
        const Bytes bytes(group.bytes_ahead() + 1);
        return group.Send(2, bytes);
      }};
  for (const auto& call : calls) {
    for (const auto busy_poll : {std::chrono::seconds(0), std::chrono::seconds(20)}) {
      GroupTest test = OneCollective(3);
      test.options.ahead_bytes = size_t{1} << 20;
      test.options.limit = Duration::max();
      test.options.busy_poll = busy_poll;
      runner().Run(test, [&call](TestRank& rank) {
        const Time begin = SteadyClock().Now();
        if (rank.rank == 2) {
          std::this_thread::sleep_for(std::chrono::milliseconds(100));
          rank.abort(1, "device 1 is lost");
        } else {
          const Status status = call(*rank.collectives[0]);
          EXPECT_EQ(status.code(), StatusCode::kUnavailable);
          EXPECT_EQ(Message(status), "the group is aborted because of rank 1: device 1 is lost");
        }
        const Status later = AllReduceOfThree(*rank.collectives[0]);
        EXPECT_EQ(later.code(), StatusCode::kUnavailable) << later;
        EXPECT_LT(SteadyClock().Now() - begin, std::chrono::seconds(10)) << "it polled on";
      });
      if (!runner().survives_abort()) return;
    }
  }
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(CollectiveSuite);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(CollectiveFailureSuite);

}  // namespace
}  // namespace baton
