#include "common/engine/arena.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/cpu/cpu_device.h"

namespace baton {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr size_t kGib = size_t{1} << 30;

// The layout of Llama-3.1-8B: a block of 16 tokens takes 2 MiB.
KvLayout Layout() {
  return DenseLayout({.layers = 32, .kv_heads = 8, .head_dim = 128, .dtype = DType::kBF16});
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
  size_t free_bytes() const override { return size_t{5} << 20; }

 private:
  CpuDevice memory_;
};

TEST(ArenaTest, WhatDoesNotFitSaysWhatWould) {
  SmallDevice device;
  const auto arena = AllocateArena(Layout(), WholeModel(Layout()), 2, device);
  ASSERT_TRUE(arena.ok()) << arena.status();
  EXPECT_EQ((*arena)->size(), size_t{4} << 20);
  const auto more = AllocateArena(Layout(), WholeModel(Layout()), 512, device);
  EXPECT_EQ(more.status().code(), StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(Message(more.status())),
              AllOf(HasSubstr("512 blocks, 1.00 GiB"),
                    HasSubstr("at most 2 blocks fit"),
                    HasSubstr("cuda:0 has not that much")));
}

}  // namespace
}  // namespace baton
