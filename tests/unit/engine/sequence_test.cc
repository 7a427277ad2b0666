#include "common/engine/sequence.h"

#include <set>

#include <gtest/gtest.h>

namespace baton {
namespace {

TEST(SequenceTest, OnlyTheMovesOfTheTableArePossible) {
  using enum SequenceState;
  const std::set<std::pair<SequenceState, SequenceState>> moves = {{kWaiting, kAwaitingKv},
                                                                   {kWaiting, kRunning},
                                                                   {kWaiting, kFinished},
                                                                   {kAwaitingKv, kRunning},
                                                                   {kAwaitingKv, kFinished},
                                                                   {kRunning, kWaiting},
                                                                   {kRunning, kFinished}};
  for (const SequenceState from : {kWaiting, kAwaitingKv, kRunning, kFinished}) {
    for (const SequenceState to : {kWaiting, kAwaitingKv, kRunning, kFinished}) {
      Sequence sequence;
      sequence.state = from;
      if (moves.contains({from, to})) {
        sequence.MoveTo(to);
        EXPECT_EQ(sequence.state, to);
      } else {
        EXPECT_DEATH(sequence.MoveTo(to), "cannot go from");
      }
    }
  }
}

// The first outputs of SplitMix64 with state `seed` are the seeds of samples 0, 1 and 2.
TEST(SequenceTest, SampleSeedsAreSplitMix) {
  EXPECT_EQ(SampleSeed(1234567, 0), 6457827717110365317u);
  EXPECT_EQ(SampleSeed(1234567, 1), 3203168211198807973u);
  EXPECT_EQ(SampleSeed(1234567, 2), 9817491932198370423u);
}

}  // namespace
}  // namespace baton
