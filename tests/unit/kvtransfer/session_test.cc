#include <chrono>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/kvtransfer/session_simulator.h"

namespace baton {
namespace {

using std::chrono::milliseconds;

constexpr uint32_t kSessions = 3;

struct Outcome {
  uint32_t committed = 0;
  uint32_t sender_ok = 0;
  uint32_t quarantined = 0;
};

// Runs a simulation for each seed from 1 to `seeds`. A violation fails the test and names the seed.
Outcome RunWorlds(const Faults& faults, uint64_t seeds) {
  Outcome outcome;
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    SessionSimulator world(seed, faults, kSessions);
    world.Run();
    outcome.committed += world.committed();
    outcome.sender_ok += world.sender_ok();
    outcome.quarantined += world.quarantined();
    if (world.violation().empty()) continue;
    ADD_FAILURE() << "seed " << seed << ": " << world.violation();
    return outcome;
  }
  return outcome;
}

TEST(SessionSimulation, EverythingCommitsInAPerfectWorld) {
  const Outcome outcome = RunWorlds({}, 300);
  EXPECT_EQ(outcome.committed, 300 * kSessions);
  EXPECT_EQ(outcome.sender_ok, 300 * kSessions);
}

TEST(SessionSimulation, LostRepeatedAndReorderedMessages) {
  Faults faults;
  faults.drop = 0.2;
  faults.duplicate = 0.2;
  const Outcome outcome = RunWorlds(faults, 800);
  EXPECT_GT(outcome.committed, 800 * kSessions * 8 / 10);
}

TEST(SessionSimulation, DamagedWritesAreRepairedOnceOrFail) {
  Faults faults;
  faults.corrupt_write = 0.05;
  const Outcome outcome = RunWorlds(faults, 800);
  EXPECT_GT(outcome.committed, 800 * kSessions * 7 / 10);
  EXPECT_LT(outcome.committed, 800 * kSessions);
}

TEST(SessionSimulation, WritesLateTwiceOrNever) {
  Faults faults;
  faults.repeat_write = 0.2;
  faults.lose_write = 0.02;
  faults.stall_write = 0.02;
  faults.slow_close = 0.3;
  const Outcome outcome = RunWorlds(faults, 800);
  EXPECT_GT(outcome.committed, 800u);
  EXPECT_LT(outcome.committed, 800 * kSessions);
}

TEST(SessionSimulation, AbortsAndRefusalsAtEveryPoint) {
  Faults faults;
  faults.abort = 0.03;
  faults.refuse = 0.1;
  const Outcome outcome = RunWorlds(faults, 800);
  EXPECT_GT(outcome.committed, 0u);
  EXPECT_LT(outcome.committed, 800 * kSessions);
}

TEST(SessionSimulation, CrashesAndRestartsAtEveryPoint) {
  for (const double told : {0.0, 0.5, 1.0}) {
    Faults faults;
    faults.crash = 0.02;
    faults.lost_stream = told;
    const Outcome outcome = RunWorlds(faults, 500);
    EXPECT_GT(outcome.committed, 0u);
    EXPECT_LT(outcome.committed, 500 * kSessions);
  }
}

TEST(SessionSimulation, EverythingAtOnce) {
  Faults faults;
  faults.drop = 0.1;
  faults.duplicate = 0.1;
  faults.corrupt_write = 0.01;
  faults.repeat_write = 0.1;
  faults.lose_write = 0.01;
  faults.stall_write = 0.01;
  faults.slow_close = 0.2;
  faults.crash = 0.003;
  faults.lost_stream = 0.5;
  faults.abort = 0.005;
  faults.refuse = 0.05;
  const Outcome outcome = RunWorlds(faults, 3000);
  EXPECT_GT(outcome.committed, 0u);
}

TEST(SessionSimulation, BlocksThatCannotBeFencedAreQuarantined) {
  Faults faults;
  faults.abort = 0.05;
  faults.never_close = 0.5;
  const Outcome outcome = RunWorlds(faults, 300);
  EXPECT_GT(outcome.quarantined, 0u);
}

TEST(SessionSimulation, OneStuckHandOffStallsNoOther) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SessionSimulator world(seed, {}, kSessions);
    world.StallWritesOf(1);
    world.Run();
    ASSERT_EQ(world.violation(), "") << "seed " << seed;
    EXPECT_TRUE(world.is_committed(0));
    EXPECT_TRUE(world.is_committed(2));
    EXPECT_FALSE(world.is_committed(1));
  }
}

// A prompt of eight blocks with four layer groups. One layer group is computed every 100 ms.
class HeldBack {
 public:
  explicit HeldBack(Duration group_time)
      : sender_({.total_tokens = kBlocks,
                 .owed = {.count = kBlocks},
                 .timeout = std::chrono::seconds(10),
                 .layer_groups = 4},
                {},
                now_) {
    sender_.SetLinks({{0}, {1}, {2}, {3}});
    sender_.SetGroupTime(group_time);
    for (uint32_t i = 0; i < kBlocks; ++i) blocks_.emplace_back(i);
  }

  void TakeGrant() {
    Grant grant;
    grant.links = 4;
    grant.blocks = {blocks_};
    sender_.OnMessage(grant, now_);
  }
  // Makes the next layer group ready. Returns the group ranges [first, end) that may now move.
  std::vector<std::pair<uint32_t, uint32_t>> Compute() {
    now_ += milliseconds(100);
    EXPECT_TRUE(sender_.AddBlocks({0, blocks_, ++computed_}, now_).ok());
    return Sent();
  }
  std::vector<std::pair<uint32_t, uint32_t>> Sent() {
    std::vector<std::pair<uint32_t, uint32_t>> sent;
    const auto send = [&](std::pair<uint32_t, uint32_t> groups) {
      if (!sent.empty() && sent.back().second == groups.first) {
        sent.back().second = groups.second;
      } else {
        sent.push_back(groups);
      }
    };
    for (const SenderAction& action : sender_.TakeActions()) {
      if (std::holds_alternative<StartWrites>(action)) {
        for (const auto& groups : std::exchange(held_, {})) send(groups);
      } else if (const auto* post = std::get_if<PostBlocks>(&action)) {
        EXPECT_EQ(post->blocks.size(), kBlocks);
        if (post->held) {
          held_.emplace_back(post->first_group, post->end_group);
        } else {
          send({post->first_group, post->end_group});
        }
      }
    }
    return sent;
  }
  // Group ranges that were posted as held.
  const std::vector<std::pair<uint32_t, uint32_t>>& held() const { return held_; }

 private:
  static constexpr uint32_t kBlocks = 8;
  Time now_{std::chrono::hours(1)};
  SenderSession sender_;
  std::vector<BlockId> blocks_;
  std::vector<std::pair<uint32_t, uint32_t>> held_;
  uint32_t computed_ = 0;
};

using Groups = std::vector<std::pair<uint32_t, uint32_t>>;

TEST(SenderSession, SendsAtOnceWhenNothingIsGainedByWaiting) {
  HeldBack prompt(Duration{});
  prompt.TakeGrant();
  EXPECT_EQ(prompt.Compute(), (Groups{{0, 1}}));
  EXPECT_EQ(prompt.Compute(), (Groups{{1, 2}}));
}

TEST(SenderSession, HoldsBackUntilOnlyTheLastIsToCome) {
  HeldBack prompt(milliseconds(1));
  prompt.TakeGrant();
  EXPECT_EQ(prompt.Compute(), Groups{});
  EXPECT_EQ(prompt.Compute(), Groups{});
  EXPECT_EQ(prompt.held(), (Groups{{0, 1}, {1, 2}}));
  EXPECT_EQ(prompt.Compute(), (Groups{{0, 3}}));
  EXPECT_EQ(prompt.Compute(), (Groups{{3, 4}}));
}

TEST(SenderSession, DoesNotHoldBackWhatTakesLongToSend) {
  HeldBack prompt(milliseconds(50));
  prompt.TakeGrant();
  EXPECT_EQ(prompt.Compute(), Groups{});
  EXPECT_EQ(prompt.Compute(), (Groups{{0, 2}}));
  EXPECT_EQ(prompt.Compute(), (Groups{{2, 3}}));
}

TEST(SenderSession, SendsAllAtOnceWhenTheGrantComesLate) {
  HeldBack prompt(milliseconds(1));
  EXPECT_EQ(prompt.Compute(), Groups{});
  EXPECT_EQ(prompt.Compute(), Groups{});
  EXPECT_EQ(prompt.Compute(), Groups{});
  prompt.TakeGrant();
  EXPECT_EQ(prompt.Sent(), (Groups{{0, 3}}));
}

TEST(SenderSession, LacksOnlySealBetweenTheLastWriteAndSeal) {
  const Time now{std::chrono::hours(1)};
  SenderSession sender(
      {.total_tokens = 1, .owed = {.count = 1}, .timeout = std::chrono::seconds(10)}, {}, now);
  Grant grant;
  const std::vector<BlockId> block = {BlockId(3)};
  grant.blocks = {block};
  sender.OnMessage(grant, now);
  EXPECT_FALSE(sender.lacks_only_seal());  // nothing is computed
  ASSERT_TRUE(sender.AddBlocks({0, block, 1}, now).ok());
  EXPECT_FALSE(sender.lacks_only_seal());
  const uint64_t checksum = 5;
  sender.OnPosted(0, 0, {&checksum, 1}, 100, now);
  EXPECT_FALSE(sender.lacks_only_seal());
  sender.OnWritten(1, 100, now);
  EXPECT_TRUE(sender.lacks_only_seal());
  sender.Seal("x", now);
  EXPECT_FALSE(sender.lacks_only_seal());
}

TEST(ReceiverSession, LacksOnlySealBetweenTheLastArrivalAndSeal) {
  const Time now{std::chrono::hours(1)};
  ReceiverSession receiver(
      {.total_tokens = 1, .timeout = std::chrono::seconds(10)}, {.count = 1}, {}, now);
  EXPECT_FALSE(receiver.lacks_only_seal());
  ReceiverSession::Reservation reservation;
  reservation.grant.blocks.assign(1, {BlockId(3)});
  reservation.links = {{.groups = {}, .block_bytes = 100}};
  ASSERT_TRUE(receiver.Grant(std::move(reservation), now).ok());
  EXPECT_FALSE(receiver.lacks_only_seal());
  const uint64_t checksum = 5;
  receiver.OnArrival({.link = 0, .first = 0, .count = 1, .bytes = 100, .checksums = {&checksum, 1}},
                     now);
  EXPECT_TRUE(receiver.lacks_only_seal());
  receiver.OnMessage(Seal{.blocks = 1, .bytes = 100, .checksums = {checksum}, .payload = {}}, now);
  EXPECT_FALSE(receiver.lacks_only_seal());
}

}  // namespace
}  // namespace baton
