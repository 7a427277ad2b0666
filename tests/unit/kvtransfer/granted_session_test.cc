// How each end of a granted hand-off reacts to messages and writes that do not fit the grant.
#include <chrono>
#include <optional>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

#include "kvtransfer/session/receiver_session.h"
#include "kvtransfer/session/sender_session.h"

namespace baton {
namespace {

// A granted hand-off of two blocks of 100 bytes on one link.
constexpr uint32_t kTwoBlocks = 2;
constexpr uint64_t kTwoBlocksBytes = 200;
const std::vector<uint64_t> kTwoChecksums = {11, 12};

Grant TwoBlocksGrant() {
  Grant grant;
  grant.window_key = 9;
  grant.blocks = {{BlockId(3), BlockId(4)}};
  return grant;
}

// The last action of type A, if there is one.
template <class A, class Action>
std::optional<A> LastOf(const std::vector<Action>& actions) {
  std::optional<A> last;
  for (const Action& action : actions) {
    if (const auto* found = std::get_if<A>(&action)) last = *found;
  }
  return last;
}

// The last control message of type M that was sent, if there is one.
template <class M, class Action>
std::optional<M> LastSent(const std::vector<Action>& actions) {
  std::optional<M> last;
  for (const Action& action : actions) {
    const auto* send = std::get_if<SendControl>(&action);
    if (send == nullptr) continue;
    if (const auto* found = std::get_if<M>(&send->message)) last = *found;
  }
  return last;
}

class GrantedReceiverTest : public testing::Test {
 protected:
  GrantedReceiverTest()
      : receiver_({.total_tokens = kTwoBlocks, .timeout = std::chrono::seconds(10)},
                  {.count = kTwoBlocks},
                  {},
                  now_) {
    ReceiverSession::Reservation reservation;
    reservation.grant = TwoBlocksGrant();
    reservation.links = {{.groups = {}, .block_bytes = 100}};
    EXPECT_TRUE(receiver_.Grant(std::move(reservation), now_).ok());
    (void)receiver_.TakeActions();
  }

  void Land(uint32_t block, uint64_t checksum) {
    receiver_.OnArrival(
        {.link = 0, .first = block, .count = 1, .bytes = 100, .checksums = {&checksum, 1}}, now_);
  }
  void LandBoth() {
    for (uint32_t block = 0; block < kTwoBlocks; ++block) Land(block, kTwoChecksums[block]);
  }
  static Seal GoodSeal() {
    return {.blocks = kTwoBlocks,
            .bytes = kTwoBlocksBytes,
            .checksums = kTwoChecksums,
            .payload = "first"};
  }

  const Time now_{std::chrono::hours(1)};
  ReceiverSession receiver_;
};

TEST_F(GrantedReceiverTest, CommitsWhenTheWindowsAreClosedAndNothingChanged) {
  LandBoth();
  receiver_.OnMessage(GoodSeal(), now_);
  const auto verified = receiver_.TakeActions();
  EXPECT_TRUE(LastOf<CloseWindows>(verified).has_value());
  EXPECT_FALSE(LastOf<ReportCommitted>(verified).has_value()) << "a write may still land";
  receiver_.OnWindowsClosed(OkStatus(), now_);
  const auto closed = receiver_.TakeActions();
  ASSERT_TRUE(LastOf<ReportCommitted>(closed).has_value());
  EXPECT_EQ(LastOf<ReportCommitted>(closed)->payload, "first");
  EXPECT_EQ(LastSent<Ack>(closed), Ack{kTwoBlocksBytes});
}

// A RENEW for each SEAL would only wake the sender's thread.
TEST_F(GrantedReceiverTest, OnlyARepeatedSealIsAnsweredWithTheProgress) {
  Land(0, kTwoChecksums[0]);
  receiver_.OnMessage(GoodSeal(), now_);
  EXPECT_TRUE(receiver_.TakeActions().empty());
  receiver_.OnMessage(GoodSeal(), now_);
  EXPECT_EQ(LastSent<Renew>(receiver_.TakeActions()), (Renew{true, 1}));
}

// A write that is applied late or twice may still land until the windows are closed.
TEST_F(GrantedReceiverTest, AWriteThatLandsAfterTheCheckIsCheckedAgain) {
  LandBoth();
  receiver_.OnMessage(GoodSeal(), now_);
  ASSERT_EQ(receiver_.state(), ReceiverState::kClosing);
  Land(1, kTwoChecksums[1] + 1);
  receiver_.OnWindowsClosed(OkStatus(), now_);
  const auto closed = receiver_.TakeActions();
  EXPECT_FALSE(LastOf<ReportCommitted>(closed).has_value());
  EXPECT_FALSE(LastSent<Ack>(closed).has_value());
  ASSERT_TRUE(LastOf<ReportReleased>(closed).has_value());
  EXPECT_EQ(LastOf<ReportReleased>(closed)->status.code(), StatusCode::kDataLoss);
  ASSERT_TRUE(LastSent<Abort>(closed).has_value());
  EXPECT_EQ(LastSent<Abort>(closed)->status.code(), StatusCode::kDataLoss);
}

TEST_F(GrantedReceiverTest, ASealOfOtherTotalsThanTheGrantEndsTheHandOff) {
  std::vector<Seal> wrong(3, GoodSeal());
  wrong[0].bytes = kTwoBlocksBytes - 1;
  wrong[1].blocks = kTwoBlocks - 1;
  wrong[2].checksums.pop_back();
  for (const Seal& seal : wrong) {
    ReceiverSession receiver = receiver_;
    for (uint32_t block = 0; block < kTwoBlocks; ++block) {
      receiver.OnArrival({.link = 0,
                          .first = block,
                          .count = 1,
                          .bytes = 100,
                          .checksums = {&kTwoChecksums[block], 1}},
                         now_);
    }
    receiver.OnMessage(seal, now_);
    EXPECT_EQ(receiver.state(), ReceiverState::kDraining);
    receiver.OnWindowsClosed(OkStatus(), now_);
    const auto closed = receiver.TakeActions();
    EXPECT_FALSE(LastOf<ReportCommitted>(closed).has_value());
    ASSERT_TRUE(LastOf<ReportReleased>(closed).has_value());
    EXPECT_EQ(LastOf<ReportReleased>(closed)->status.code(), StatusCode::kInvalidArgument);
    EXPECT_TRUE(LastSent<Abort>(closed).has_value());
  }
}

TEST_F(GrantedReceiverTest, AWriteOfAnotherPlaceOrSizeThanGrantedEndsTheHandOff) {
  const std::span<const uint64_t> one = std::span(kTwoChecksums).first(1);
  const std::vector<PieceArrival> wrong = {
      {.link = 1, .first = 0, .count = 1, .bytes = 100, .checksums = one},
      {.link = 0, .first = 3, .count = 1, .bytes = 100, .checksums = one},
      {.link = 0, .first = 1, .count = 2, .bytes = 200, .checksums = kTwoChecksums},
      {.link = 0, .first = 0, .count = 1, .bytes = 99, .checksums = one},
      {.link = 0, .first = 0, .count = 1, .bytes = 100, .checksums = {}}};
  for (const PieceArrival& arrival : wrong) {
    ReceiverSession receiver = receiver_;
    receiver.OnArrival(arrival, now_);
    EXPECT_EQ(receiver.state(), ReceiverState::kDraining);
    EXPECT_TRUE(LastSent<Abort>(receiver.TakeActions()).has_value());
  }
}

// Of three blocks of tokens, the cache group with a window owes the last one.
TEST(ReceiverGroupsTest, ASealMustCoverEachCacheGroup) {
  const Time now{std::chrono::hours(1)};
  ReceiverSession granted({.total_tokens = 3, .timeout = std::chrono::seconds(10)},
                          {.count = 3, .first = {0, 2}},
                          {},
                          now);
  const auto reserve = [](std::vector<std::vector<BlockId>> blocks) {
    ReceiverSession::Reservation reservation;
    reservation.grant = {.links = 2, .blocks = std::move(blocks)};
    reservation.links = {{{.cache_group = 0}, 100}, {{.cache_group = 1}, 10}};
    return reservation;
  };
  const std::vector<BlockId> all = {BlockId(0), BlockId(1), BlockId(2)};
  EXPECT_FALSE(granted.Grant(reserve({all, all}), now).ok()) << "more than is owed";
  EXPECT_FALSE(granted.Grant(reserve({all, {}}), now).ok());
  ASSERT_TRUE(granted.Grant(reserve({all, {BlockId(7)}}), now).ok());
  EXPECT_EQ(granted.bytes(), 310u);
  EXPECT_EQ(granted.granted_blocks(), 4u);
  const std::vector<uint64_t> checksums = {1, 2, 3, 4};
  const auto land = [&](ReceiverSession& receiver) {
    receiver.OnArrival({0, 0, 3, 300, std::span(checksums).first(3)}, now);
    receiver.OnArrival({1, 0, 1, 10, std::span(checksums).last(1)}, now);
  };
  const Seal without_window = {3, 300, {1, 2, 3}, "x"};
  const Seal of_another_window = {4, 310, {1, 2, 3, 5}, "x"};
  const Seal whole = {4, 310, checksums, "x"};
  for (const Seal& seal : {without_window, of_another_window, whole}) {
    ReceiverSession receiver = granted;
    land(receiver);
    (void)receiver.TakeActions();
    receiver.OnMessage(seal, now);
    const auto actions = receiver.TakeActions();
    EXPECT_EQ(receiver.state() == ReceiverState::kClosing, seal == whole);
    EXPECT_EQ(LastSent<Abort>(actions).has_value(), seal == without_window);
    EXPECT_EQ(LastSent<Resend>(actions).has_value(), seal == of_another_window);
    if (seal == of_another_window) {
      EXPECT_EQ(LastSent<Resend>(actions)->blocks, std::vector<uint32_t>{2}) << "of the prompt";
    }
  }
  // A write into the window as one more of its blocks.
  granted.OnArrival({1, 1, 1, 10, std::span(checksums).first(1)}, now);
  EXPECT_EQ(granted.state(), ReceiverState::kDraining);
}

// Two blocks of tokens, and a state of three arena blocks, which is one piece.
TEST(ReceiverStateTest, ASealMustCoverTheState) {
  const Time now{std::chrono::hours(1)};
  ReceiverSession granted({.total_tokens = 2, .timeout = std::chrono::seconds(10)},
                          {.count = 2, .first = {0, 1}, .state = true},
                          {},
                          now);
  const auto reserve = [](std::vector<std::vector<BlockId>> blocks) {
    ReceiverSession::Reservation reservation;
    reservation.grant = {.links = 2, .blocks = std::move(blocks)};
    reservation.links = {{{.cache_group = 0}, 100}, {{.cache_group = 1}, 1000}};
    reservation.state_blocks = 3;
    return reservation;
  };
  const std::vector<BlockId> two = {BlockId(0), BlockId(1)};
  const std::vector<BlockId> three = {BlockId(7), BlockId(4), BlockId(5)};
  EXPECT_FALSE(granted.Grant(reserve({two, {}}), now).ok());
  EXPECT_FALSE(granted.Grant(reserve({two, two}), now).ok());
  EXPECT_FALSE(granted.Grant(reserve({three, two}), now).ok());
  ASSERT_TRUE(granted.Grant(reserve({two, three}), now).ok());
  EXPECT_EQ(granted.bytes(), 1200u);
  EXPECT_EQ(granted.granted_blocks(), 5u);
  const std::vector<uint64_t> checksums = {1, 2, 3};
  const Seal without_state = {2, 200, {1, 2}, "x"};
  const Seal without_its_blocks = {3, 1200, checksums, "x"};
  const Seal without_its_checksum = {5, 1200, {1, 2}, "x"};
  const Seal of_another_state = {5, 1200, {1, 2, 4}, "x"};
  const Seal whole = {5, 1200, checksums, "x"};
  for (const Seal& seal :
       {without_state, without_its_blocks, without_its_checksum, of_another_state, whole}) {
    ReceiverSession receiver = granted;
    receiver.OnArrival({0, 0, 2, 200, std::span(checksums).first(2)}, now);
    (void)receiver.TakeActions();
    receiver.OnMessage(seal, now);
    const bool refused = seal != whole && seal != of_another_state;
    EXPECT_EQ(receiver.state() == ReceiverState::kReceiving, !refused) << "the state is not there";
    receiver.OnArrival({1, 0, 1, 1000, std::span(checksums).last(1)}, now);
    const auto actions = receiver.TakeActions();
    EXPECT_EQ(receiver.state() == ReceiverState::kClosing, seal == whole);
    EXPECT_EQ(LastSent<Abort>(actions).has_value(), refused);
    ASSERT_EQ(LastSent<Resend>(actions).has_value(), seal == of_another_state);
    if (seal == of_another_state) {
      EXPECT_EQ(LastSent<Resend>(actions)->blocks, std::vector<uint32_t>{1}) << "the last block";
    }
  }
  // A second piece of the state.
  granted.OnArrival({1, 1, 1, 1000, std::span(checksums).first(1)}, now);
  EXPECT_EQ(granted.state(), ReceiverState::kDraining);
}

// Two layer groups; both groups have a link in each.
TEST(SenderStateTest, TheStateGoesWithTheLayersOfTheLastBlock) {
  const Time now{std::chrono::hours(1)};
  const auto offered = [&] {
    SenderSession sender({.total_tokens = 2,
                          .owed = {.count = 2, .first = {0, 1}, .state = true},
                          .timeout = std::chrono::seconds(10),
                          .layer_groups = 2,
                          .state_blocks = 2},
                         {},
                         now);
    sender.SetLinks({{0, 0}, {0, 1}, {1, 0}, {1, 1}}, 3);
    (void)sender.TakeActions();
    return sender;
  };
  Grant grant = {.links = 4, .blocks = {{BlockId(0), BlockId(1)}, {BlockId(3)}}};
  SenderSession wrong = offered();
  wrong.OnMessage(grant, now);
  EXPECT_TRUE(LastSent<Fail>(wrong.TakeActions()).has_value()) << "the peer's state has 3 blocks";
  grant.blocks[1] = {BlockId(3), BlockId(4), BlockId(6)};
  SenderSession sender = offered();
  sender.OnMessage(grant, now);
  (void)sender.TakeActions();
  const std::vector<BlockId> blocks = {BlockId(10), BlockId(11)};
  const std::vector<BlockId> state = {BlockId(20), BlockId(22)};
  const auto posts = [&] {
    std::vector<std::pair<uint32_t, uint32_t>> list;  // cache group, pieces
    for (const SenderAction& action : sender.TakeActions()) {
      const auto* post = std::get_if<PostBlocks>(&action);
      if (post != nullptr) list.emplace_back(post->cache_group, post->pieces);
    }
    return list;
  };
  using Posts = std::vector<std::pair<uint32_t, uint32_t>>;
  ASSERT_TRUE(sender.AddBlocks({0, std::span(blocks).first(1), 2}, now).ok());
  EXPECT_EQ(posts(), (Posts{{0, 2}}));
  EXPECT_FALSE(sender.AddBlocks({0, std::span(blocks).first(1), 2, state}, now).ok());
  EXPECT_FALSE(sender.AddBlocks({1, std::span(blocks).last(1), 1}, now).ok());
  ASSERT_TRUE(sender.AddBlocks({1, std::span(blocks).last(1), 1, state}, now).ok());
  EXPECT_EQ(posts(), (Posts{{0, 1}, {1, 1}}));
  ASSERT_TRUE(sender.AddBlocks({1, std::span(blocks).last(1), 2, state}, now).ok());
  EXPECT_EQ(posts(), (Posts{{0, 1}, {1, 1}}));
  EXPECT_EQ(sender.posted_blocks(), 5u);
  EXPECT_EQ(sender.source_blocks(), 4u);
  EXPECT_TRUE(std::ranges::equal(sender.state_blocks(), state));
}

class GrantedSenderTest : public testing::Test {
 protected:
  GrantedSenderTest()
      : sender_({.total_tokens = kTwoBlocks,
                 .owed = {.count = kTwoBlocks},
                 .timeout = std::chrono::seconds(10)},
                {},
                now_) {
    sender_.OnMessage(TwoBlocksGrant(), now_);
    (void)sender_.TakeActions();
  }
  // Computes, writes and seals both blocks.
  void FinishBoth() {
    const std::vector<BlockId> source = {BlockId(0), BlockId(1)};
    ASSERT_TRUE(sender_.AddBlocks({0, source, 1}, now_).ok());
    sender_.OnPosted(0, 0, kTwoChecksums, kTwoBlocksBytes, now_);
    sender_.OnWritten(kTwoBlocks, kTwoBlocksBytes, now_);
    sender_.Seal("first", now_);
    ASSERT_EQ(sender_.state(), SenderState::kSealed);
    (void)sender_.TakeActions();
  }

  const Time now_{std::chrono::hours(1)};
  SenderSession sender_;
};

TEST_F(GrantedSenderTest, TheSameGrantAgainChangesNothing) {
  sender_.OnMessage(TwoBlocksGrant(), now_);
  EXPECT_EQ(sender_.state(), SenderState::kStreaming);
  EXPECT_TRUE(sender_.TakeActions().empty());
}

TEST(SenderSessionGrantTest, AGrantOfOtherBlocksThanThePromptHasEndsTheHandOff) {
  const Time now{std::chrono::hours(1)};
  std::vector<Grant> wrong(3, TwoBlocksGrant());
  wrong[0].blocks[0].pop_back();
  wrong[1].cached_blocks = 1;
  wrong[2].cached_blocks = 3;
  for (const Grant& grant : wrong) {
    SenderSession sender({.total_tokens = kTwoBlocks,
                          .owed = {.count = kTwoBlocks},
                          .timeout = std::chrono::seconds(10)},
                         {},
                         now);
    sender.OnMessage(grant, now);
    const auto actions = sender.TakeActions();
    ASSERT_TRUE(LastOf<ReportEnd>(actions).has_value());
    EXPECT_EQ(LastOf<ReportEnd>(actions)->status.code(), StatusCode::kInvalidArgument);
    EXPECT_TRUE(LastSent<Fail>(actions).has_value());
  }
}

// Of three blocks of tokens, the cache group with a window owes the last one.
TEST(SenderSessionGrantTest, AGrantHasTheOwedBlocksOfEachCacheGroup) {
  const Time now{std::chrono::hours(1)};
  const std::vector<BlockId> all = {BlockId(0), BlockId(1), BlockId(2)};
  const std::vector<BlockId> last = {BlockId(5)};
  const auto grant = [&](std::vector<std::vector<BlockId>> blocks) {
    SenderSession sender({.total_tokens = 3,
                          .owed = {.count = 3, .first = {0, 2}},
                          .timeout = std::chrono::seconds(10)},
                         {},
                         now);
    sender.SetLinks({{.cache_group = 0}, {.cache_group = 1}});
    sender.OnMessage(Grant{.links = 2, .blocks = std::move(blocks)}, now);
    return sender;
  };
  for (SenderSession sender :
       {grant({all}), grant({last, all}), grant({all, all}), grant({all, {}}), grant({{}, last})}) {
    const auto actions = sender.TakeActions();
    ASSERT_TRUE(LastOf<ReportEnd>(actions).has_value());
    EXPECT_EQ(LastOf<ReportEnd>(actions)->status.code(), StatusCode::kInvalidArgument);
  }
  SenderSession sender = grant({all, last});
  (void)sender.TakeActions();
  std::vector<BlockId> sources(6);
  for (uint32_t i = 0; i < sources.size(); ++i) sources[i] = BlockId(10 + i);
  ASSERT_TRUE(sender.AddBlocks({0, sources, 1}, now).ok());
  std::vector<PostBlocks> posts;
  for (const SenderAction& action : sender.TakeActions()) {
    if (const auto* post = std::get_if<PostBlocks>(&action)) posts.push_back(*post);
  }
  ASSERT_EQ(posts.size(), 2u);
  EXPECT_EQ(posts[0].blocks, (std::vector<uint32_t>{0, 1, 2}));
  EXPECT_EQ(posts[1].blocks, std::vector<uint32_t>{0});
  EXPECT_EQ(posts[1].cache_group, 1u);
  EXPECT_EQ(sender.pair(0, 1).source, BlockId(15)) << "of the third block of tokens";
  EXPECT_EQ(sender.pair(0, 1).destination, BlockId(5));
  EXPECT_EQ(sender.outstanding(), 4u);
}

// A session has one grant: its blocks cannot come from two.
TEST_F(GrantedSenderTest, ASecondOtherGrantEndsTheHandOff) {
  Grant second = TwoBlocksGrant();
  second.blocks[0][1] = BlockId(7);
  sender_.OnMessage(second, now_);
  const auto actions = sender_.TakeActions();
  ASSERT_TRUE(LastOf<ReportEnd>(actions).has_value());
  EXPECT_EQ(LastOf<ReportEnd>(actions)->status.code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(LastSent<Fail>(actions).has_value());
}

// The client waits for the blocks of a prompt that is computed.
TEST(UrgentSenderTest, BlocksAreUrgentOnceThePromptIsComputed) {
  const Time now{std::chrono::hours(1)};
  SenderSession sender(
      {.total_tokens = 2, .owed = {.count = 2}, .timeout = std::chrono::seconds(10)}, {}, now);
  sender.SetLinks({{}});
  sender.OnMessage(TwoBlocksGrant(), now);
  const std::vector<BlockId> blocks = {BlockId(0), BlockId(1)};
  ASSERT_TRUE(sender.AddBlocks({0, std::span(blocks).first(1), 1}, now).ok());
  EXPECT_FALSE(LastOf<PostBlocks>(sender.TakeActions()).value().urgent);
  ASSERT_TRUE(sender.AddBlocks({1, std::span(blocks).last(1), 1}, now).ok());
  EXPECT_TRUE(LastOf<PostBlocks>(sender.TakeActions()).value().urgent);
}

// The receiver repeats RESEND until the blocks arrive.
TEST_F(GrantedSenderTest, ARepeatedResendIsAnsweredOnce) {
  FinishBoth();
  const Resend resend{.attempt = 1, .blocks = {1}};
  sender_.OnMessage(resend, now_);
  const auto first = LastOf<PostBlocks>(sender_.TakeActions());
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(first->blocks, std::vector<uint32_t>{1});
  for (int i = 0; i < 3; ++i) {
    sender_.OnMessage(resend, now_);
    EXPECT_FALSE(LastOf<PostBlocks>(sender_.TakeActions()).has_value());
  }
  EXPECT_EQ(sender_.resent_blocks(), 1u);
  sender_.OnPosted(0, 1, {&kTwoChecksums[1], 1}, 100, now_);
  sender_.OnWritten(1, 100, now_);
  sender_.OnMessage(resend, now_);
  EXPECT_FALSE(LastOf<PostBlocks>(sender_.TakeActions()).has_value()) << "it was written already";
  EXPECT_EQ(sender_.resent_blocks(), 1u);
}

}  // namespace
}  // namespace baton
