#include "common/group/step_message.h"

#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace baton {
namespace {

// A step with arrays of random lengths and contents, and its memory.
struct RandomStep {
  explicit RandomStep(uint64_t seed) : random(seed) {
    Fill(tokens);
    Fill(positions);
    Fill(block_tables);
    Fill(logit_rows);
    sequences.resize(random() % 5);
    for (SequenceRows& rows : sequences) {
      rows = {.first_row = Number(),
              .row_count = Number(),
              .context = Number(),
              .first_block = Number(),
              .table_blocks = Number(),
              .state_table = Number(),
              .in_state = random() % 2 == 0};
    }
    results = static_cast<RowResults>(Number() % 3);
    state_blocks = Number();
    copies.resize(random() % 5);
    for (BlockCopy& copy : copies) copy = {Number(), Number()};
  }

  int32_t Number() { return static_cast<int32_t>(random()); }
  void Fill(std::vector<int32_t>& values) {
    values.resize(random() % 20);
    for (int32_t& value : values) value = Number();
  }
  StepInput input() const {
    return {tokens, positions, sequences, block_tables, logit_rows, results, state_blocks};
  }

  std::mt19937_64 random;
  std::vector<int32_t> tokens, positions, block_tables, logit_rows;
  RowResults results = RowResults::kLogits;
  int32_t state_blocks = 0;
  std::vector<SequenceRows> sequences;
  std::vector<BlockCopy> copies;
};

template <class T>
std::vector<T> Vector(std::span<const T> values) {
  return {values.begin(), values.end()};
}

std::vector<int32_t> Numbers(std::span<const SequenceRows> sequences) {
  std::vector<int32_t> numbers;
  for (const SequenceRows& rows : sequences) {
    numbers.insert(numbers.end(),
                   {rows.first_row,
                    rows.row_count,
                    rows.context,
                    rows.first_block,
                    rows.table_blocks,
                    rows.state_table,
                    rows.in_state ? 1 : 0});
  }
  return numbers;
}

// Memory aligned to 8 bytes.
std::vector<uint64_t> Encoded(const RandomStep& step, uint64_t number, size_t& bytes) {
  bytes = StepMessageBytes(step.input(), step.copies);
  std::vector<uint64_t> memory((bytes + 7) / 8);
  EncodeStep({number, step.input(), step.copies},
             {reinterpret_cast<std::byte*>(memory.data()), bytes});
  return memory;
}

TEST(StepMessageTest, IsDecodedAsItWasEncoded) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const RandomStep step(seed);
    size_t bytes = 0;
    const auto memory = Encoded(step, seed + 1, bytes);
    const auto message = DecodeStep({reinterpret_cast<const std::byte*>(memory.data()), bytes});
    ASSERT_TRUE(message.ok()) << message.status();
    EXPECT_EQ(message->number, seed + 1);
    EXPECT_EQ(Vector(message->input.tokens), step.tokens);
    EXPECT_EQ(Vector(message->input.positions), step.positions);
    EXPECT_EQ(Numbers(message->input.sequences), Numbers(step.sequences));
    EXPECT_EQ(message->input.results, step.results);
    EXPECT_EQ(message->input.state_blocks, step.state_blocks);
    EXPECT_EQ(Vector(message->input.block_tables), step.block_tables);
    EXPECT_EQ(Vector(message->input.logit_rows), step.logit_rows);
    ASSERT_EQ(message->copies.size(), step.copies.size());
    for (size_t i = 0; i < step.copies.size(); ++i) {
      EXPECT_EQ(message->copies[i].from, step.copies[i].from);
      EXPECT_EQ(message->copies[i].to, step.copies[i].to);
    }
  }
}

TEST(StepMessageTest, AChangedBitOrLengthIsAnError) {
  const RandomStep step(7);
  size_t bytes = 0;
  const auto memory = Encoded(step, 3, bytes);
  for (size_t i = 0; i < bytes; ++i) {
    auto changed = memory;
    reinterpret_cast<std::byte*>(changed.data())[i] ^= std::byte{1};
    const auto message = DecodeStep({reinterpret_cast<const std::byte*>(changed.data()), bytes});
    EXPECT_FALSE(message.ok()) << "byte " << i;
  }
  for (size_t length = 0; length < bytes; ++length) {
    EXPECT_FALSE(DecodeStep({reinterpret_cast<const std::byte*>(memory.data()), length}).ok());
  }
}

TEST(StepMessageTest, TheMostBytesHoldEveryStepWithinTheLimits) {
  const std::vector<int32_t> rows(10);
  const std::vector<SequenceRows> sequences(4);
  const std::vector<int32_t> tables(4 * 6);
  const StepInput input{rows, rows, sequences, tables, rows};
  EXPECT_LE(StepMessageBytes(input, {}), MaxStepMessageBytes(10, 4, 6));
  const std::vector<BlockCopy> copies(600);
  EXPECT_LE(StepMessageBytes({}, copies), MaxStepMessageBytes(10, 4, 600));
}

}  // namespace
}  // namespace baton
