#include <cstdint>

#include <gtest/gtest.h>

#include "kernels/cuda/table/kernel_table.h"
#include "kernels/cuda/table/recurrent_request.h"

// What the kernel table chooses for recurrent layers.
namespace baton::cuda {
namespace {

DeviceProperties Card(int32_t architecture) {
  DeviceProperties device;
  device.architecture = device.code_architecture = architecture;
  device.sm_count = 132;
  device.block_shared_bytes = (architecture == 90 ? 227 : 163) << 10;
  return device;
}

TEST(RecurrentTable, StatesThatDoNotFitRegistersAreRefused) {
  RecurrentShape shape = {
      .key_heads = 16, .value_heads = 32, .key_dim = 256, .value_dim = 128, .kernel = 4};
  const auto check = [&] { return CheckChoice(RecurrentRequest(shape, false), Card(80)); };
  EXPECT_TRUE(check().ok());
  shape.key_dim = 257;
  EXPECT_EQ(Message(check()),
            "no kernel computes the recurrent layers of f32 on sm_80; the nearest are "
            "recurrent/update_states: rows of a state ≤ 256 is false (rows of a state 257)");
  shape.rule = RecurrentRule::kSelectiveScan;
  shape.key_dim = 65;
  EXPECT_FALSE(check().ok());
  shape.key_dim = 16;
  EXPECT_TRUE(check().ok());
}

TEST(RecurrentTable, DecodingRowsOfDeltaNetsRunInOneKernelOnHopper) {
  const RecurrentShape qwen3_next = {
      .key_heads = 16, .value_heads = 32, .key_dim = 128, .value_dim = 128, .kernel = 4};
  const auto kernel = [](const RecurrentShape& shape, int64_t alignment, int32_t architecture) {
    const KernelRequest request = RecurrentRowsRequest(shape, alignment, true);
    return RowOf(Choose(request, Card(architecture))->kernel).name;
  };
  EXPECT_EQ(kernel(qwen3_next, 16, 90), "recurrent/decode_rows");
  EXPECT_EQ(kernel(qwen3_next, 8, 90), "recurrent/update_states");
  EXPECT_EQ(kernel(qwen3_next, 16, 80), "recurrent/update_states");
  RecurrentShape other = qwen3_next;
  other.rule = RecurrentRule::kChannelDelta;
  EXPECT_EQ(kernel(other, 16, 90), "recurrent/decode_rows");
  other.rule = RecurrentRule::kStateSpace;
  EXPECT_EQ(kernel(other, 16, 90), "recurrent/update_states");
  other = qwen3_next;
  other.kernel = 5;
  EXPECT_EQ(kernel(other, 16, 90), "recurrent/update_states");
  other = qwen3_next;
  other.value_dim = 64;
  EXPECT_EQ(kernel(other, 16, 90), "recurrent/update_states");
}

TEST(RecurrentTable, PromptsOfDeltaNetsRunInChunksWhereTheirOrderIsFree) {
  const RecurrentShape qwen3_next = {
      .key_heads = 16, .value_heads = 32, .key_dim = 128, .value_dim = 128, .kernel = 4};
  const auto kernel = [](const RecurrentShape& shape, bool deterministic, int32_t architecture) {
    const KernelRequest request = RecurrentChunksRequest(shape, deterministic);
    return RowOf(Choose(request, Card(architecture))->kernel).name;
  };
  EXPECT_EQ(kernel(qwen3_next, false, 90), "recurrent/chunk_rows");
  EXPECT_EQ(kernel(qwen3_next, true, 90), "recurrent/update_states");
  EXPECT_EQ(kernel(qwen3_next, false, 80), "recurrent/update_states");
  RecurrentShape other = qwen3_next;
  other.rule = RecurrentRule::kChannelDelta;
  EXPECT_EQ(kernel(other, false, 90), "recurrent/update_states");
}

TEST(RecurrentTable, StatesAreAsAlignedAsTheirBlocksAndLayers) {
  const RecurrentShape shape = {
      .key_heads = 16, .value_heads = 32, .key_dim = 128, .value_dim = 128, .kernel = 4};
  KvView kv;
  kv.block_stride = 1056;
  kv.state.block_bytes = 1040;
  kv.state.layer_bytes = 4096;
  EXPECT_EQ(StateAlignment(shape, kv), 16);
  kv.state.block_bytes = 1032;
  EXPECT_EQ(StateAlignment(shape, kv), 8);
  kv.block_stride = 1060;
  EXPECT_EQ(StateAlignment(shape, kv), 4);
}

}  // namespace
}  // namespace baton::cuda
