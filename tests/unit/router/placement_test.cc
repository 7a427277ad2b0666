#include "router/routing/placement.h"

#include <optional>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace baton::router {
namespace {

constexpr Time kStart{std::chrono::hours(1)};
constexpr int kTokens = 64;  // of a prompt: four blocks

WorkerInfo Info() {
  WorkerInfo info;
  info.id = WorkerId("a");
  info.can_prefill = info.can_decode = true;
  info.block_tokens = 16;
  info.blocks = 1000;
  info.max_sequences = 64;
  return info;
}

RequestSpec Spec(uint64_t id) {
  RequestSpec spec;
  spec.id = RequestId(id);
  spec.prompt = std::vector<TokenId>(kTokens, 1);
  for (uint64_t block = 0; block < 4; ++block) spec.hashes.push_back({id, block});
  return spec;
}

Request RequestOf(const RequestSpec& spec) {
  Request request;
  request.id = spec.id;
  request.epoch = Epoch(1);
  request.tokens = spec.prompt;
  return request;
}

// One worker that serves alone.
class PlacementTest : public testing::Test {
 protected:
  PlacementTest() { index_.AddWorker(slot_); }

  Placement::Plan Place(const RequestSpec& spec) {
    auto plan = placement_.Place({.spec = spec, .resumed = {}, .avoid = {}, .unable = {}}, kStart);
    return std::move(plan.value().value());
  }
  int32_t Cached(const RequestSpec& spec) {
    std::vector<int32_t> depth;
    index_.Match(spec.hashes, kStart, depth);
    return depth[slot_.value()];
  }

  const CoreOptions options_;
  const std::optional<ClusterIdentity> cluster_;
  WorkerBook book_;
  PrefixIndex index_{1024};
  Placement placement_{options_, cluster_, book_, index_};
  const WorkerSlot slot_ = *book_.Add(Info(), kStart);
};

TEST_F(PlacementTest, BookingDoesNotDependOnLaterPlacements) {
  const RequestSpec cached = Spec(1);
  const RequestSpec fresh = Spec(2);
  index_.Expect(slot_, cached.hashes, kStart + std::chrono::hours(1));
  const Placement::Plan first = Place(cached);
  const Placement::Plan second = Place(fresh);

  placement_.Book(first, RequestOf(cached), kStart);
  EXPECT_EQ(book_.Estimate(slot_).queued_tokens, 1) << "the last token is always computed";
  EXPECT_EQ(book_.Estimate(slot_).blocks_free, 999);
  EXPECT_EQ(Cached(fresh), 0);

  placement_.Book(second, RequestOf(fresh), kStart);
  EXPECT_EQ(book_.Estimate(slot_).queued_tokens, 1 + kTokens);
  EXPECT_EQ(book_.Estimate(slot_).blocks_free, 999 - 5);
  EXPECT_EQ(Cached(fresh), 4);
}

// Workers that do both take blocks in the order of their ids, so KV that worker b may hold is
// offered to c, but never to a.
TEST(PlacementOrderTest, HeldKvIsOfferedOnlyToLaterArenas) {
  const CoreOptions options;
  const std::optional<ClusterIdentity> cluster;
  WorkerBook book;
  PrefixIndex index{1024};
  Placement placement{options, cluster, book, index};
  const auto add = [&](const char* id, bool prefill) {
    WorkerInfo info = Info();
    info.id = WorkerId(id);
    info.can_prefill = prefill;
    const WorkerSlot slot = *book.Add(info, kStart);
    index.AddWorker(slot);
    return slot;
  };
  const WorkerSlot a = add("a", true);
  const WorkerSlot b = add("b", true);
  const RequestSpec spec = Spec(1);
  const Placement::Query query{.spec = spec, .resumed = {}, .avoid = {}, .unable = {}};
  const auto earlier = placement.PlaceDecode(query, b, /*prefill_holds=*/false, kStart);
  EXPECT_EQ(earlier->where.decode, a);
  EXPECT_TRUE(earlier->decode_first);
  EXPECT_FALSE(placement.PlaceDecode(query, b, /*prefill_holds=*/true, kStart).has_value());
  // A worker that only decodes comes after all that prefill, whatever its id is.
  const WorkerSlot last = add("0", false);
  const auto later = placement.PlaceDecode(query, b, /*prefill_holds=*/true, kStart);
  EXPECT_EQ(later->where.decode, last);
  EXPECT_FALSE(later->decode_first);
}

// In a model with windows beside layers that read all tokens, a prefix whose windows are gone is
// computed again. A dispatch makes the router expect the windows, too.
TEST(PlacementWindowTest, APrefixWithoutItsWindowsIsNotCached) {
  const CoreOptions options;
  std::optional<ClusterIdentity> cluster = ClusterIdentity{};
  cluster->block_tokens = 16;
  cluster->window = 32;
  WorkerBook book;
  PrefixIndex index(1024);
  Placement placement(options, cluster, book, index);
  WorkerInfo info = Info();
  info.window = 32;
  const WorkerSlot slot = *book.Add(info, kStart);
  index.AddWorker(slot);
  const RequestSpec spec = Spec(1);
  const auto place = [&] {
    return placement.Place({.spec = spec, .resumed = {}, .avoid = {}, .unable = {}}, kStart)
        .value()
        .value();
  };
  index.Expect(slot, spec.hashes, kStart + std::chrono::hours(1));
  const Placement::Plan plan = place();
  EXPECT_EQ(plan.decode_cached, 0);
  placement.Book(plan, RequestOf(spec), kStart);
  EXPECT_EQ(place().decode_cached, 4);
}

// What ends with its prompt is computed by workers that prefill, whatever their other roles are.
TEST(PlacementRoleTest, WhatEndsWithItsPromptNeedsAPrefillWorker) {
  const CoreOptions options;
  const std::optional<ClusterIdentity> cluster;
  WorkerBook book;
  PrefixIndex index{1024};
  Placement placement{options, cluster, book, index};
  const auto add = [&](const char* id, bool prefill, bool decode) {
    WorkerInfo info = Info();
    info.id = WorkerId(id);
    info.can_prefill = prefill;
    info.can_decode = decode;
    const WorkerSlot slot = *book.Add(info, kStart);
    index.AddWorker(slot);
    return slot;
  };
  RequestSpec spec = Spec(1);
  spec.pooling = Pooling::kLast;
  const Placement::Query query{
      .spec = spec, .resumed = {}, .avoid = {}, .unable = {}, .alone = true};
  const auto place = [&] { return placement.Place(query, kStart); };
  EXPECT_FALSE(place()->has_value()) << "a worker may join soon";
  add("decode", false, true);
  EXPECT_EQ(place().status().code(), StatusCode::kUnavailable);
  const WorkerSlot prefill = add("prefill", true, false);
  const auto plan = place();
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ((*plan)->where.decode, prefill);
  EXPECT_EQ((*plan)->where.prefill, kNoWorker);
  spec.pooling = Pooling::kNone;
  spec.labels = {1, 2};
  EXPECT_EQ((*place())->where.decode, prefill);
  spec.labels.clear();
  EXPECT_NE((*place())->where.decode, prefill);
}

TEST(PlacementRoleTest, APromptThatFitsOnNoPrefillWorkerIsRefused) {
  const CoreOptions options;
  const std::optional<ClusterIdentity> cluster;
  WorkerBook book;
  PrefixIndex index{1024};
  Placement placement{options, cluster, book, index};
  WorkerInfo info = Info();
  info.can_decode = false;
  info.blocks = 4;  // as many as the prompt has; there must be room for one token more
  index.AddWorker(*book.Add(info, kStart));
  info.id = WorkerId("b");
  info.can_decode = true;
  info.can_prefill = false;
  info.blocks = 1000;
  index.AddWorker(*book.Add(info, kStart));
  RequestSpec spec = Spec(1);
  spec.pooling = Pooling::kMean;
  const auto plan = placement.Place(
      {.spec = spec, .resumed = {}, .avoid = {}, .unable = {}, .alone = true}, kStart);
  EXPECT_EQ(plan.status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace baton::router
