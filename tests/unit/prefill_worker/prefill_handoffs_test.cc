#include "prefill_worker/prefill_handoffs.h"

#include <variant>
#include <vector>

#include <gtest/gtest.h>

// One order of events that the simulation of hand-offs (tests/unit/handoff) rarely has.
namespace baton {
namespace {

constexpr RouterKey kRouter(1);
constexpr Time kNow{std::chrono::hours(1)};
const WorkerId kFirst("d1");
const WorkerId kSecond("d2");

TEST(PrefillHandoffsTest, ALateRefusalOfAnEarlierSessionIsIgnored) {
  PrefillHandoffs handoffs({});
  DispatchCommand dispatch;
  dispatch.request.id = RequestId(7);
  dispatch.request.epoch = Epoch(1);
  dispatch.session = SessionId(1);
  dispatch.peer.id = kFirst;
  ASSERT_TRUE(handoffs.OnDispatch(kRouter, dispatch, kNow).ok());
  handoffs.OnPeerSettled(kFirst, OkStatus(), kNow);
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

}  // namespace
}  // namespace baton
