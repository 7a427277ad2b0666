#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/state_memory.h"
#include "kernels/state_chains.h"

// The states of sequences on CPUs: which sequences of a step may be computed at the same time, what
// a step may not state, and numbers in several blocks.
namespace baton::cpu {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Sequences whose states have two blocks each.
std::vector<std::vector<int32_t>> ChainsOf(const std::vector<std::vector<int32_t>>& lists,
                                           StateChains& chains) {
  std::vector<int32_t> tables;
  std::vector<SequenceRows> sequences;
  for (const std::vector<int32_t>& blocks : lists) {
    SequenceRows& rows = sequences.emplace_back();
    rows.state_table = static_cast<int32_t>(tables.size());
    tables.insert(tables.end(), blocks.begin(), blocks.end());
  }
  StepInput input;
  input.sequences = sequences;
  input.block_tables = tables;
  input.state_blocks = 2;
  chains.Build(input, 100);
  std::vector<std::vector<int32_t>> result;
  for (size_t i = 0; i < chains.size(); ++i) {
    result.emplace_back(chains.chain(i).begin(), chains.chain(i).end());
  }
  return result;
}

TEST(StateChainsTest, SequencesWithACommonBlockAreInOneChainInTheirOrder) {
  StateChains chains;
  EXPECT_THAT(ChainsOf({{1, 2, 1, 2}, {3, 4, 5, 6}, {7, 8, 7, 8}}, chains),
              ElementsAre(ElementsAre(0), ElementsAre(1), ElementsAre(2)));
  // The third one reads what the first one writes, the fifth one writes what the second one reads.
  EXPECT_THAT(
      ChainsOf({{1, 2, 3, 4}, {5, 6, 7, 8}, {3, 4, 9, 10}, {11, 12, 11, 12}, {13, 14, 5, 6}},
               chains),
      ElementsAre(ElementsAre(0, 2), ElementsAre(1, 4), ElementsAre(3)));
  // The last one joins two chains.
  EXPECT_THAT(ChainsOf({{1, 2, 1, 2}, {3, 4, 3, 4}, {5, 6, 5, 6}, {5, 6, 1, 2}}, chains),
              ElementsAre(ElementsAre(0, 2, 3), ElementsAre(1)));
  EXPECT_TRUE(ChainsOf({}, chains).empty());
}

TEST(StateMemoryTest, NumbersAreInTheBlocksOfTheList) {
  std::vector<float> arena(40, -1.0f);
  KvView kv;
  kv.base = reinterpret_cast<std::byte*>(arena.data());
  kv.block_stride = 40;
  kv.state = {.block_bytes = 32, .layer_bytes = 0};
  const std::vector<int32_t> blocks = {3, 0, 2};
  std::vector<float> numbers(13);
  std::iota(numbers.begin(), numbers.end(), 0.0f);
  WriteState(kv, blocks, 24, numbers);  // from number 6 on
  EXPECT_EQ(arena[30 + 6], 0);
  EXPECT_EQ(arena[30 + 7], 1);
  EXPECT_EQ(arena[30 + 8], -1) << "behind the bytes of a state";
  EXPECT_EQ(arena[0], 2);
  EXPECT_EQ(arena[7], 9);
  EXPECT_EQ(arena[20 + 2], 12);
  EXPECT_EQ(arena[20 + 3], -1);
  std::vector<float> read(13);
  ReadState(kv, blocks, 24, read);
  EXPECT_EQ(read, numbers);
}

TEST(CpuStatesTest, AStepNamesWhatIsWrongWithItsStates) {
  CpuDevice device;
  const auto ops = *MakeCpuOps(device, {1, BestCpuIsa()});
  EXPECT_TRUE(ops->kv_needs().states);
  std::vector<std::byte> arena(16384);
  struct Step {
    std::vector<int32_t> tables = {0, 1, 2, 1, 2};
    SequenceRows rows = {.row_count = 1, .state_table = 1};
    int32_t state_blocks = 2;
    int32_t row_count = 1;
  };
  const auto error = [&](const std::function<void(Step&)>& change) {
    Step step;
    change(step);
    const std::vector<TokenId> tokens(static_cast<size_t>(step.row_count), 0);
    const std::vector<int32_t> positions(tokens.size(), 0);
    step.rows.row_count = step.row_count;
    StepInput input = {.tokens = tokens,
                       .positions = positions,
                       .sequences = {&step.rows, 1},
                       .block_tables = step.tables,
                       .logit_rows = {},
                       .state_blocks = step.state_blocks};
    KvView kv;
    kv.base = arena.data();
    kv.blocks = 4;
    kv.layers = 1;
    kv.kv_heads = 1;
    kv.head_dim = 8;
    kv.block_tokens = 16;
    kv.k_dim_major = true;
    kv.value_offset = 512;
    kv.state = {.block_bytes = 64, .layer_bytes = 64};
    return std::string(Message(ops->BeginStep(input, kv)));
  };
  EXPECT_EQ(error([](Step&) {}), "");
  EXPECT_THAT(error([](Step& step) { step.state_blocks = 0; }), HasSubstr("two lists of 0 blocks"));
  EXPECT_THAT(error([](Step& step) { step.tables.pop_back(); }),
              HasSubstr("two lists of 2 blocks of states from entry 1 of the block tables on; "
                        "there are 4 entries"));
  EXPECT_THAT(error([](Step& step) { step.rows.state_table = -1; }), HasSubstr("from entry -1"));
  EXPECT_THAT(error([](Step& step) { step.tables[4] = 4; }),
              HasSubstr("block 4 of a state; the arena has 4"));
  EXPECT_THAT(error([](Step& step) { step.tables[2] = -1; }), HasSubstr("block -1 of a state"));
  EXPECT_THAT(error([](Step& step) {
                step.rows.in_state = true;
                step.row_count = 2;
              }),
              HasSubstr("2 rows that are in their state already; only one may be"));
}

}  // namespace
}  // namespace baton::cpu
