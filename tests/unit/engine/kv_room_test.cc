#include "common/engine/kv_room.h"

#include <limits>

#include <gtest/gtest.h>

#include "common/kvcache/layout.h"

namespace baton {
namespace {

constexpr int32_t kBlockTokens = 4;

TEST(KvRoomTest, WithoutAWindowASequenceHoldsEachBlock) {
  const KvRoom room(std::vector<KvWindow>{0}, kBlockTokens, 20, 64);
  EXPECT_FALSE(room.slides());
  EXPECT_EQ(room.chunk_tokens(), 64);
  EXPECT_EQ(room.max_tokens(), 81);
  EXPECT_EQ(room.All(33), 9);
  EXPECT_EQ(room.ByChunks(33), 9);
  EXPECT_EQ(room.FirstRead(0, 70), 0);
}

TEST(KvRoomTest, AWindowInAllLayersBoundsASequence) {
  // A window of 10 tokens takes 4 blocks; a chunk may take the other 16.
  const KvRoom room(std::vector<KvWindow>{10}, kBlockTokens, 20, 32);
  EXPECT_TRUE(room.slides());
  EXPECT_EQ(room.chunk_tokens(), 32);
  EXPECT_EQ(room.max_tokens(), std::numeric_limits<int64_t>::max());
  EXPECT_EQ(room.All(1000), 250);
  EXPECT_EQ(room.ByChunks(1000), 4 + 8);
  EXPECT_EQ(room.ByChunksThenDecodes(1000, 9), 4);
  EXPECT_EQ(room.ReceivedThenDecodes(1000), 4);
  EXPECT_EQ(room.Received(40), 3) << "token 40 reads the tokens from 31 on";
  EXPECT_EQ(room.Received(42), 3) << "token 42 reads the tokens from 33 on";
  EXPECT_EQ(room.FirstRead(0, 9), 0);
  EXPECT_EQ(room.FirstRead(0, 21), 3);
  EXPECT_FALSE(KvRoom(std::vector<KvWindow>{10}, kBlockTokens, 6, 32).slides());
}

TEST(KvRoomTest, ASequenceHoldsAChunkAtATime) {
  const KvRoom room(std::vector<KvWindow>{KvWindow::OfChunks(10)}, kBlockTokens, 20, 32);
  EXPECT_TRUE(room.slides());
  EXPECT_EQ(room.FirstRead(0, 19), 2) << "token 19 reads the tokens from 10 on";
  EXPECT_EQ(room.FirstRead(0, 20), 5) << "token 20 begins a chunk";
  EXPECT_FALSE(room.IsPassed(0, 19, 2));
  EXPECT_TRUE(room.IsPassed(0, 19, 1) && room.IsPassed(0, 20, 4));
  EXPECT_FALSE(room.IsPassed(0, 20, 5));
  EXPECT_EQ(room.Received(19), 3) << "blocks 2 to 4";
  EXPECT_EQ(room.Received(20), 1) << "the last block, though token 20 does not read it";
}

TEST(KvRoomTest, GroupsWithAWindowLeaveTheArenaToTheOthers) {
  const KvRoom room(std::vector<KvWindow>{0, 10, 10}, kBlockTokens, 200, 16);
  EXPECT_TRUE(room.slides());
  EXPECT_EQ(room.chunk_tokens(), 16);
  EXPECT_EQ(room.All(400), 300);
  EXPECT_EQ(room.ByChunks(400), 100 + 2 * (4 + 4));
  EXPECT_EQ(room.FirstSizes(400, 20), (std::vector<int32_t>{100, 24, 24}));
  // With chunks of up to 16 blocks, 160 are left to the group without a window.
  EXPECT_EQ(room.max_tokens(), 160 * kBlockTokens + 1);
}

// Workers with equal arenas end an answer at the same token, however large their steps are.
TEST(KvRoomTest, TheLongestSequenceDoesNotDependOnTheSteps) {
  const std::vector<KvWindow> windows = {0, 10};
  const KvRoom small(windows, kBlockTokens, 100, 8);
  const KvRoom large(windows, kBlockTokens, 100, 4096);
  EXPECT_LT(small.chunk_tokens(), large.chunk_tokens());
  EXPECT_EQ(small.max_tokens(), large.max_tokens());
}

// Sequences of 32k tokens in the shapes of gpt-oss-20b and of Gemma-3-27B, beside a cache that
// keeps all tokens of all layers.
TEST(KvRoomTest, ModelsWithSomeWindowsHoldSeveralTimesTheTokens) {
  const auto gain = [](int32_t layers, int32_t window, int32_t period) {
    DenseKv kv = {.layers = layers, .kv_heads = 8, .head_dim = 64};
    kv.windows.assign(layers, window);
    for (int32_t layer = period - 1; layer < layers; layer += period) kv.windows[layer] = 0;
    const KvRoom room(DenseLayout(kv).windows(), kv.block_tokens, 1 << 20, 2048);
    return static_cast<double>(room.All(32768)) / room.ByChunksThenDecodes(32768, 0);
  };
  EXPECT_GT(gain(24, 128, 2), 1.9);
  EXPECT_GT(gain(62, 1024, 6), 4);
}

TEST(KvRoomTest, ASequenceHoldsAStateBesideItsTokens) {
  const KvRoom room(std::vector<KvWindow>{0}, kBlockTokens, 20, 64, /*state_blocks=*/5);
  EXPECT_FALSE(room.slides());
  EXPECT_EQ(room.All(9), 3 + 5);
  EXPECT_EQ(room.ByChunksThenDecodes(9, 5), 3 + 5);
  EXPECT_EQ(room.Received(9), 3 + 5);
  EXPECT_EQ(room.FirstSizes(9, 0), std::vector<int32_t>{3});
  EXPECT_EQ(room.max_tokens(), 15 * kBlockTokens + 1);
}

// Every size of arena leaves room for windows and chunks, and for the longest sequence.
TEST(KvRoomTest, TheLongestSequenceFits) {
  for (int32_t blocks = 1; blocks < 300; ++blocks) {
    const KvRoom room(std::vector<KvWindow>{0, 7, 20}, kBlockTokens, blocks, 64);
    EXPECT_LE(room.ByChunks(room.max_tokens() - 1), blocks);
    EXPECT_GE(room.chunk_tokens(), 3);
    // Longer than without windows.
    EXPECT_GE(room.max_tokens(), blocks / 3 * kBlockTokens + 1);
  }
}

}  // namespace
}  // namespace baton
