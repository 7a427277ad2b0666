#include "prefill_worker/prefill_handoffs.h"

#include <algorithm>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

// Orders of events that the simulation of hand-offs (tests/unit/handoff) rarely has, and the order
// in which the two workers take their blocks.
namespace baton {
namespace {

constexpr RouterKey kRouter(1);
constexpr Time kNow{std::chrono::hours(1)};
const WorkerId kFirst("d1");
const WorkerId kSecond("d2");

const RequestKey kKey(RequestId(7), Epoch(1));
const SessionKey kSession(SessionId(1), Epoch(1));

DispatchCommand Dispatch(bool peer_first) {
  DispatchCommand dispatch;
  dispatch.request.id = kKey.first;
  dispatch.request.epoch = kKey.second;
  dispatch.request.kind = RequestKind::kPrefill;
  dispatch.request.peer_first = peer_first;
  dispatch.session = kSession.first;
  dispatch.peer.id = kFirst;
  return dispatch;
}

RedirectCommand Redirect(bool peer_first) {
  RedirectCommand redirect;
  redirect.id = kKey.first;
  redirect.epoch = kKey.second;
  redirect.session = SessionId(2);
  redirect.decode_epoch = Epoch(2);
  redirect.peer.id = kSecond;
  redirect.peer_first = peer_first;
  return redirect;
}

template <class Action>
size_t Count(const std::vector<PrefillAction>& actions) {
  return std::ranges::count_if(
      actions, [](const PrefillAction& each) { return std::holds_alternative<Action>(each); });
}

const Status kNoRoom(StatusCode::kResourceExhausted, "no room");

TEST(PrefillHandoffsTest, APromptIsOfferedWhenTheEngineHasBegunIt) {
  for (const bool starts_first : {false, true}) {
    PrefillHandoffs handoffs({});
    ASSERT_TRUE(handoffs.OnDispatch(kRouter, Dispatch(false)).ok());
    if (starts_first) handoffs.OnStarted(kKey, kNow);
    if (!starts_first) handoffs.OnPeerSettled(kFirst, OkStatus(), kNow);
    EXPECT_EQ(Count<OfferKv>(handoffs.TakeActions()), 0u);
    if (starts_first) handoffs.OnPeerSettled(kFirst, OkStatus(), kNow);
    if (!starts_first) handoffs.OnStarted(kKey, kNow);
    EXPECT_EQ(Count<OfferKv>(handoffs.TakeActions()), 1u);
    handoffs.OnGranted(kSession);
    EXPECT_TRUE(handoffs.TakeActions().empty()) << "the engine was not held";
  }
}

TEST(PrefillHandoffsTest, APromptWhosePeerComesFirstBeginsAfterTheGrant) {
  PrefillHandoffs handoffs({});
  ASSERT_TRUE(handoffs.OnDispatch(kRouter, Dispatch(true)).ok());
  handoffs.OnPeerSettled(kFirst, OkStatus(), kNow);
  std::vector<PrefillAction> actions = handoffs.TakeActions();
  EXPECT_EQ(Count<OfferKv>(actions), 1u);
  EXPECT_EQ(Count<StartRequest>(actions), 0u);
  handoffs.OnGranted(kSession);
  EXPECT_EQ(Count<StartRequest>(handoffs.TakeActions()), 1u);
  handoffs.OnStarted(kKey, kNow);
  EXPECT_TRUE(handoffs.TakeActions().empty()) << "it is offered already";
}

// A held prompt has no blocks, so after a refusal it may go to any decode worker.
TEST(PrefillHandoffsTest, AHeldPromptIsRedirectedToAnyPeer) {
  for (const bool peer_first : {false, true}) {
    PrefillHandoffs handoffs({});
    ASSERT_TRUE(handoffs.OnDispatch(kRouter, Dispatch(true)).ok());
    handoffs.OnPeerSettled(kFirst, OkStatus(), kNow);
    handoffs.OnRefused(kSession, kNoRoom, kNow);
    (void)handoffs.TakeActions();
    handoffs.OnRedirect(kRouter, Redirect(peer_first));
    EXPECT_EQ(Count<StartRequest>(handoffs.TakeActions()), peer_first ? 0u : 1u);
    handoffs.OnPeerSettled(kSecond, OkStatus(), kNow);
    EXPECT_EQ(Count<OfferKv>(handoffs.TakeActions()), peer_first ? 1u : 0u);
  }
}

// With its blocks it may not wait for a peer that takes its own first: the router plans it again.
TEST(PrefillHandoffsTest, APromptWithBlocksIsNotRedirectedToAPeerThatComesFirst) {
  PrefillHandoffs handoffs({});
  ASSERT_TRUE(handoffs.OnDispatch(kRouter, Dispatch(false)).ok());
  handoffs.OnStarted(kKey, kNow);
  handoffs.OnPeerSettled(kFirst, OkStatus(), kNow);
  handoffs.OnRefused(kSession, kNoRoom, kNow);
  (void)handoffs.TakeActions();
  handoffs.OnRedirect(kRouter, Redirect(true));
  const std::vector<PrefillAction> actions = handoffs.TakeActions();
  ASSERT_EQ(Count<ReportHandoff>(actions), 1u);
  EXPECT_EQ(Count<DropRequest>(actions), 1u);
  EXPECT_EQ(Count<ConnectPeer>(actions), 0u);
}

TEST(PrefillHandoffsTest, ALateRefusalOfAnEarlierSessionIsIgnored) {
  PrefillHandoffs handoffs({});
  DispatchCommand dispatch;
  dispatch.request.id = RequestId(7);
  dispatch.request.epoch = Epoch(1);
  dispatch.session = SessionId(1);
  dispatch.peer.id = kFirst;
  ASSERT_TRUE(handoffs.OnDispatch(kRouter, dispatch).ok());
  handoffs.OnPeerSettled(kFirst, OkStatus(), kNow);
  handoffs.OnStarted({dispatch.request.id, dispatch.request.epoch}, kNow);
  const SessionKey first(dispatch.session, dispatch.request.epoch);
  const Status refusal(StatusCode::kResourceExhausted, "no room");
  handoffs.OnRefused(first, refusal, kNow);
  RedirectCommand redirect;
  redirect.id = dispatch.request.id;
  redirect.epoch = dispatch.request.epoch;
  redirect.session = SessionId(2);
  redirect.decode_epoch = Epoch(2);
  redirect.peer.id = kSecond;
  handoffs.OnRedirect(kRouter, redirect);
  handoffs.OnPeerSettled(kSecond, OkStatus(), kNow);
  const std::vector<PrefillAction> actions = handoffs.TakeActions();
  ASSERT_TRUE(std::holds_alternative<OfferKv>(actions.back()));
  EXPECT_EQ(std::get<OfferKv>(actions.back()).offer.peer, kSecond);
  handoffs.OnRefused(first, refusal, kNow);
  EXPECT_TRUE(handoffs.TakeActions().empty());
}

// A worker that is offered the KV later gets the blocks of all chunks, in the order of the prompt.
TEST(PrefillHandoffsTest, ChunksHaveABlockOfEachCacheGroup) {
  PrefillHandoffs handoffs({});
  ASSERT_TRUE(handoffs.OnDispatch(kRouter, Dispatch(false)).ok());
  handoffs.OnStarted(kKey, kNow);
  std::vector<BlockId> all;
  for (const int32_t first : {0, 2}) {
    std::vector<BlockId> blocks;
    for (uint32_t i = 0; i < 4; ++i) blocks.emplace_back(static_cast<uint32_t>(10 * first) + i);
    all.insert(all.end(), blocks.begin(), blocks.end());
    handoffs.OnChunk({kKey.first, kKey.second, first, 2, blocks, {}, false}, kNow);
  }
  handoffs.OnPeerSettled(kFirst, OkStatus(), kNow);
  const std::vector<PrefillAction> actions = handoffs.TakeActions();
  ASSERT_TRUE(std::holds_alternative<SendBlocks>(actions.back()));
  EXPECT_EQ(std::get<SendBlocks>(actions.back()).blocks, all);
  EXPECT_EQ(std::get<SendBlocks>(actions.back()).first_index, 0u);
}

// The state comes with the last chunk. A worker that is offered the KV later gets it, too.
TEST(PrefillHandoffsTest, TheStateGoesWithTheLastBlocks) {
  const std::vector<BlockId> blocks = {BlockId(1), BlockId(2)};
  const std::vector<BlockId> state = {BlockId(7), BlockId(5)};
  for (const bool connected : {true, false}) {
    PrefillHandoffs handoffs({});
    ASSERT_TRUE(handoffs.OnDispatch(kRouter, Dispatch(false)).ok());
    handoffs.OnStarted(kKey, kNow);
    if (connected) handoffs.OnPeerSettled(kFirst, OkStatus(), kNow);
    const KvChunk last = {.id = kKey.first,
                          .epoch = kKey.second,
                          .first_index = 2,
                          .blocks = blocks,
                          .state = state,
                          .last = true};
    KvChunk first = last;
    first.first_index = 0;
    first.state = {};
    first.last = false;
    handoffs.OnChunk(first, kNow);
    handoffs.OnLayers(last, 1);
    handoffs.OnChunk(last, kNow);
    if (!connected) handoffs.OnPeerSettled(kFirst, OkStatus(), kNow);
    std::vector<std::vector<BlockId>> sent;
    for (const PrefillAction& action : handoffs.TakeActions()) {
      const auto* send = std::get_if<SendBlocks>(&action);
      if (send != nullptr) sent.push_back(send->state);
    }
    EXPECT_EQ(sent,
              connected ? (std::vector<std::vector<BlockId>>{{}, state, state})
                        : (std::vector<std::vector<BlockId>>{state}));
  }
}

// The sender needs to know how long the hand-off is worth waiting for.
TEST(PrefillHandoffsTest, ASealTellsWhatThePromptHasCost) {
  for (const bool pinned : {false, true}) {
    PrefillHandoffs handoffs({});
    DispatchCommand dispatch = Dispatch(false);
    dispatch.request.tokens = std::vector<TokenId>(20);
    dispatch.request.pinned = pinned;
    ASSERT_TRUE(handoffs.OnDispatch(kRouter, dispatch).ok());
    handoffs.OnPeerSettled(kFirst, OkStatus(), kNow);
    handoffs.OnStarted(kKey, kNow);
    const std::vector<BlockId> blocks = {BlockId(1), BlockId(2)};
    KvChunk chunk;
    chunk.id = kKey.first;
    chunk.epoch = kKey.second;
    chunk.blocks = blocks;
    handoffs.OnChunk(chunk, kNow + std::chrono::seconds(3));
    TokenOutput token;
    token.id = kKey.first;
    token.epoch = kKey.second;
    token.finish = FinishReason::kHandedOff;
    handoffs.OnToken(token);
    handoffs.OnEnded(kKey, OkStatus());
    const std::vector<PrefillAction> actions = handoffs.TakeActions();
    ASSERT_EQ(Count<SealKv>(actions), 1u);
    const auto& seal = std::get<SealKv>(actions.back());
    EXPECT_EQ(seal.total_tokens, 20u);
    EXPECT_EQ(seal.computed, std::chrono::seconds(3));
    EXPECT_EQ(seal.pinned, pinned);
  }
}

}  // namespace
}  // namespace baton
