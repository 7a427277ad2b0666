#include "common/engine/arena.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/cpu/cpu_device.h"

namespace baton {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr size_t kGib = size_t{1} << 30;

// The layout of Llama-3.1-8B: a block of 16 tokens takes 2 MiB.
KvLayout Layout() {
  return DenseLayout({.layers = 32, .kv_heads = 8, .head_dim = 128, .dtype = DType::kBF16});
}

ModelTraits Traits() {
  return {.block_token_multiple = 16, .kv = {.layers = 32, .kv_heads = 8, .head_dim = 128}};
}

KvOptions Asking(int32_t blocks, size_t bytes, double fraction) {
  KvOptions options;
  options.blocks = blocks;
  options.memory_bytes = bytes;
  options.memory_fraction = fraction;
  return options;
}

TEST(ArenaTest, BlocksThenBytesThenTheShareOfWhatIsFree) {
  EXPECT_EQ(*ArenaBlocks(Asking(7, kGib, 0.5), Layout(), WholeModel(Layout()), 100 * kGib), 7);
  EXPECT_EQ(*ArenaBlocks(Asking(0, kGib, 0.5), Layout(), WholeModel(Layout()), 100 * kGib), 512);
  EXPECT_EQ(*ArenaBlocks(Asking(0, 0, 0.5), Layout(), WholeModel(Layout()), 100 * kGib), 25600);
  EXPECT_EQ(*ArenaBlocks(Asking(0, 0, 1), Layout(), WholeModel(Layout()), (kGib / 512) * 3 + 5), 3);
}

TEST(ArenaTest, NotOneBlockIsAnErrorThatNamesTheNumbers) {
  const auto bytes =
      ArenaBlocks(Asking(0, size_t{1} << 20, 0.5), Layout(), WholeModel(Layout()), kGib);
  EXPECT_EQ(bytes.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(
      std::string(Message(bytes.status())),
      AllOf(HasSubstr("kv_memory_mib is 1;"), HasSubstr("2097152 bytes, so at least 2 is needed")));
  const auto share = ArenaBlocks(Asking(0, 0, 0.5), Layout(), WholeModel(Layout()), kGib / 512);
  EXPECT_EQ(share.status().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(Message(share.status())),
              AllOf(HasSubstr("kv_memory_fraction 0.5"), HasSubstr("2097152 bytes")));
}

// A device with little memory that, like a GPU, refuses allocations which do not fit.
class SmallDevice final : public Device {
 public:
  std::string name() const override { return "cuda:0"; }
  StatusOr<std::unique_ptr<Buffer>> Allocate(size_t bytes, Sharing sharing) override {
    if (bytes <= free_bytes()) return memory_.Allocate(bytes, sharing);
    return Status(StatusCode::kResourceExhausted, "cuda:0 has not that much");
  }
  Status CopyIn(const Buffer& to, size_t offset, std::span<const std::byte> from) override {
    return memory_.CopyIn(to, offset, from);
  }
  Status CopyOut(const Buffer& from, size_t offset, std::span<std::byte> to) override {
    return memory_.CopyOut(from, offset, to);
  }
  size_t free_bytes() const override { return free_bytes_; }
  void TakeMebibytes(size_t count) { free_bytes_ -= count << 20; }

 private:
  size_t free_bytes_ = size_t{5} << 20;
  CpuDevice memory_;
};

TEST(ArenaTest, WhatDoesNotFitSaysWhatWould) {
  SmallDevice device;
  KvOptions options = Asking(2, 0, 0);
  options.dtype = DType::kBF16;
  const auto opened = OpenArena({.options = options}, Traits(), device);
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ(opened->memory->size(), size_t{4} << 20);
  EXPECT_EQ(opened->arena.memory, opened->memory.get());
  EXPECT_TRUE(opened->arena.shard == WholeModel(Layout()));
  EXPECT_EQ(opened->view.base, opened->memory->data());
  EXPECT_EQ(opened->view.blocks, 2);
  options.blocks = 512;
  const auto more = OpenArena({.options = options}, Traits(), device);
  EXPECT_EQ(more.status().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(Message(more.status())),
              AllOf(HasSubstr("512 blocks, 1.00 GiB"),
                    HasSubstr("at most 2 blocks fit"),
                    HasSubstr("cuda:0 has not that much")));
}

TEST(ArenaTest, OptionsAreChecked) {
  SmallDevice device;
  const auto refused = [&](const KvOptions& options) {
    return std::string(Message(OpenArena({.options = options}, Traits(), device).status()));
  };
  EXPECT_EQ(refused({.blocks = -1}), "engine: kv_blocks is -1; it must be between 0 and 16777216");
  EXPECT_THAT(refused({.blocks = 0, .memory_bytes = 10}), HasSubstr("kv_memory_mib is 0;"));
  EXPECT_EQ(refused({.block_tokens = 24}),
            "engine: block_tokens is 24; on cuda:0 it must be a multiple of 16");
  EXPECT_EQ(refused({.dtype = DType::kFp8}),
            "engine: kv_type is fp8, but the model was not loaded for an fp8 KV cache; it must be "
            "f32, f16 or bf16");
}

// The steps of the warm-up allocate memory, so they run before the arena takes what is free, and in
// memory of one block. A group agrees on the number of blocks before any rank allocates them.
TEST(ArenaTest, WarmsUpThenCountsThenAgreesThenAllocates) {
  SmallDevice device;
  std::vector<std::string> calls;
  const KvShard half = {.first_layer = 16, .layer_count = 16, .first_head = 0, .head_count = 8};
  const ArenaSpec spec = {
      .options = {.blocks = 0, .memory_bytes = 0, .memory_fraction = 1, .dtype = DType::kBF16},
      .shard = half,
      .warm_up =
          [&](const KvView& kv) {
            EXPECT_EQ(kv.blocks, 1);
            EXPECT_EQ(kv.layers, 16);
            calls.push_back("warm up");
            device.TakeMebibytes(1);
            return OkStatus();
          },
      .agree_on_blocks = [&](int32_t blocks) -> StatusOr<int32_t> {
        calls.push_back(fmt::format("{} blocks", blocks));
        return 3;
      }};
  const auto opened = OpenArena(spec, Traits(), device);
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_THAT(calls, ElementsAre("warm up", "4 blocks"));
  EXPECT_EQ(opened->view.blocks, 3);
  EXPECT_EQ(opened->memory->size(), size_t{3} << 20);
  EXPECT_TRUE(opened->arena.shard == half);
}

TEST(ArenaTest, AFailedWarmUpOrAgreementIsTheError) {
  SmallDevice device;
  const KvOptions options = {.blocks = 1};
  const auto lost = [] { return MakeStatus(StatusCode::kUnavailable, "rank 1 is lost"); };
  EXPECT_EQ(
      Message(OpenArena({.options = options, .warm_up = [&](const KvView&) { return lost(); }},
                        Traits(),
                        device)
                  .status()),
      "rank 1 is lost");
  EXPECT_EQ(
      Message(OpenArena({.options = options,
                         .agree_on_blocks = [&](int32_t) -> StatusOr<int32_t> { return lost(); }},
                        Traits(),
                        device)
                  .status()),
      "rank 1 is lost");
}

}  // namespace
}  // namespace baton
