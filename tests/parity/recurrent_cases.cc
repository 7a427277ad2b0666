#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/parity/parity.h"
#include "tests/parity/recurrent_run.h"

// Recurrent layers beside plain loops in double precision, and with other borders of steps.
namespace baton::parity {
namespace {

// Sizes that are no multiples of a vector, and those for which there are faster kernels. By rule.
const std::vector<RecurrentShape> kDeltaShapes = {
    {.key_heads = 3, .value_heads = 6, .key_dim = 20, .value_dim = 85, .kernel = 4},
    {.key_heads = 2, .value_heads = 2, .key_dim = 7, .value_dim = 9, .kernel = 3},
    {.key_heads = 1, .value_heads = 4, .key_dim = 16, .value_dim = 64, .kernel = 1},
    {.key_heads = 2, .value_heads = 4, .key_dim = 128, .value_dim = 128, .kernel = 4}};
const std::vector<RecurrentShape> kChannelDeltaShapes = {
    {RecurrentRule::kChannelDelta, 3, 3, 20, 85, 4},
    {RecurrentRule::kChannelDelta, 2, 2, 7, 9, 3},
    {RecurrentRule::kChannelDelta, 2, 2, 128, 128, 3}};
const std::vector<RecurrentShape> kStateSpaceShapes = {
    {RecurrentRule::kStateSpace, 3, 6, 20, 85, 4},
    {RecurrentRule::kStateSpace, 4, 8, 7, 9, 3, /*key_copies=*/2},
    {RecurrentRule::kStateSpace, 1, 4, 16, 64, 1}};
const std::vector<RecurrentShape> kScanShapes = {{RecurrentRule::kSelectiveScan, 3, 3, 11, 85, 4},
                                                 {RecurrentRule::kSelectiveScan, 1, 1, 4, 9, 3}};
using Shapes = std::vector<RecurrentShape>;
constexpr int32_t kRows = 30;
// Bytes of a block of a state: borders in its parts, and in none of them.
constexpr int64_t kBlockBytes[] = {RecurrentRun::kSplitBytes, int64_t{1} << 20};

void CheckResults(Ops& ops, const Shapes& shapes, const Tolerance& tolerance) {
  for (const RecurrentShape& shape : shapes) {
    SCOPED_TRACE(shape.value_dim);
    RecurrentRun run(ops, shape, 3, kRows);
    const std::vector<float> got = run.Compute();
    const std::vector<double> want = run.Expected();
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_NEAR(got[i], want[i], 10 * tolerance.attention * (1 + std::fabs(want[i])))
          << "number " << i;
    }
    RecurrentRun of_large_blocks(ops, shape, 3, kRows, kBlockBytes[1]);
    ASSERT_EQ(of_large_blocks.Compute(), got);
  }
}

// The rows of one sequence, alone, in steps of `chunk` rows.
std::vector<float> InChunks(RecurrentRun& run, int32_t chunk) {
  run.Reset();
  std::vector<float> all;
  for (int32_t first = 0; first < kRows; first += chunk) {
    const RecurrentRun::Part part = {0, std::min(chunk, kRows - first), first % 2 == 0};
    const std::vector<float> rows = run.Step({&part, 1});
    all.insert(all.end(), rows.begin(), rows.end());
  }
  return all;
}

void CheckChunks(Ops& ops, const Shapes& shapes, const Tolerance&) {
  for (const RecurrentShape& shape : shapes) {
    RecurrentRun run(ops, shape, 1, kRows);
    const std::vector<float> want = InChunks(run, kRows);
    const std::vector<float> state = run.State(0);
    for (int32_t chunk = 1; chunk < kRows; ++chunk) {
      const std::vector<float> got = InChunks(run, chunk);
      ASSERT_EQ(got.size(), want.size());
      for (size_t i = 0; i < got.size(); ++i) {
        ASSERT_EQ(got[i], want[i]) << "number " << i << ", chunks of " << chunk;
      }
      ASSERT_EQ(run.State(0), state) << "chunks of " << chunk;
    }
  }
}

// Rows of one sequence that are listed as several sequences of one step.
void CheckChains(Ops& ops, const Shapes& shapes, const Tolerance&) {
  using Part = RecurrentRun::Part;
  RecurrentRun run(ops, shapes[0], 2, kRows);
  const std::vector<Part> apart[] = {{{0, 5}, {1, 4}}, {{0, 1}}, {{0, 1}, {1, 1}}, {{0, 3}}};
  std::vector<float> first, second;
  const int64_t columns = int64_t{shapes[0].value_heads} * shapes[0].value_dim;
  for (const std::vector<Part>& parts : apart) {
    const std::vector<float> got = run.Step(parts);
    const auto middle = got.begin() + columns * parts[0].rows;
    first.insert(first.end(), got.begin(), middle);
    second.insert(second.end(), middle, got.end());
  }
  const std::vector<float> states[] = {run.State(0), run.State(1)};
  run.Reset();
  // The third part reads what the first one writes, and so on.
  const Part together[] = {{0, 5, true}, {1, 4}, {0, 1}, {0, 1, true}, {0, 3}, {1, 1, true}};
  const std::vector<float> got = run.Step(together);
  std::vector<float> of_first, of_second;
  auto next = got.begin();
  for (const Part& part : together) {
    auto& to = part.sequence == 0 ? of_first : of_second;
    const auto end = next + columns * part.rows;
    to.insert(to.end(), next, end);
    next = end;
  }
  EXPECT_EQ(of_first, first);
  EXPECT_EQ(of_second, second);
  EXPECT_EQ(run.State(0), states[0]);
  EXPECT_EQ(run.State(1), states[1]);
}

// ‖got − want‖ / ‖want‖.
template <class Number>
double DistanceOf(const std::vector<float>& got, const std::vector<Number>& want) {
  double difference = 0;
  double norm = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    difference += std::pow(static_cast<double>(got[i]) - static_cast<double>(want[i]), 2);
    norm += std::pow(static_cast<double>(want[i]), 2);
  }
  return std::sqrt(difference / norm);
}

// Prompts whose chunks end before, at and behind multiples of 64 rows, beside shorter ones.
void CheckPrompts(Ops& ops, const Shapes& shapes, const Tolerance&) {
  using Part = RecurrentRun::Part;
  constexpr int32_t kPromptRows = 130;
  constexpr double kMaxDistance = 0.01;
  const std::vector<Part> steps[] = {{{0, 64}},
                                     {{0, 65, true}, {1, 97}},
                                     {{0, 1}, {1, 32}, {2, 33, true}},
                                     {{1, 1, true}, {2, 63}},
                                     {{2, 34}}};
  // Only the kernels of kDelta have chunks.
  const bool chunked = shapes[0].rule == RecurrentRule::kDelta;
  const RecurrentShape& shape = chunked ? shapes.back() : shapes[0];
  std::vector<float> outputs[2];
  std::vector<float> states[2];
  for (size_t i = 0; i < 2; ++i) {
    RecurrentRun run(ops, shape, 3, kPromptRows, kBlockBytes[i]);
    std::vector<float> of_sequences[3];
    for (const std::vector<Part>& parts : steps) {
      const std::vector<float> got = run.Step(parts);
      auto next = got.begin();
      for (const Part& part : parts) {
        const auto end = next + shape.value_numbers() * part.rows;
        auto& to = of_sequences[part.sequence];
        to.insert(to.end(), next, end);
        next = end;
      }
    }
    for (int32_t sequence = 0; sequence < 3; ++sequence) {
      const auto& rows = of_sequences[sequence];
      outputs[i].insert(outputs[i].end(), rows.begin(), rows.end());
      const std::vector<float> state = run.State(sequence);
      states[i].insert(states[i].end(), state.begin(), state.end());
    }
    if (i > 0) continue;
    EXPECT_LE(DistanceOf(outputs[i], run.Expected()), kMaxDistance) << "outputs";
    // Row by row.
    run.Reset();
    std::vector<float> walked;
    for (int32_t row = 0; row < kPromptRows; ++row) {
      const Part one[] = {{0, 1}, {1, 1}, {2, 1}};
      run.Step(one);
    }
    for (int32_t sequence = 0; sequence < 3; ++sequence) {
      const std::vector<float> state = run.State(sequence);
      walked.insert(walked.end(), state.begin(), state.end());
    }
    EXPECT_LE(DistanceOf(states[i], walked), kMaxDistance) << "states";
  }
  EXPECT_EQ(outputs[0], outputs[1]);
  EXPECT_EQ(states[0], states[1]);
}

// As CheckChains where each of these sequences has one row.
void CheckChainsOfSingleRows(Ops& ops, const Shapes& shapes, const Tolerance&) {
  using Part = RecurrentRun::Part;
  const Part parts[] = {{0, 1, true}, {1, 1}, {0, 1}, {0, 1, true}, {1, 1, true}, {0, 1}};
  const Part before[] = {{0, 3}, {1, 2}};
  for (const RecurrentShape& shape : shapes) {
    RecurrentRun run(ops, shape, 2, kRows);
    run.Step(before);
    std::vector<float> apart;
    for (const Part& part : parts) {
      const std::vector<float> row = run.Step({&part, 1});
      apart.insert(apart.end(), row.begin(), row.end());
    }
    const std::vector<float> states[] = {run.State(0), run.State(1)};
    run.Reset();
    run.Step(before);
    EXPECT_EQ(run.Step(parts), apart);
    EXPECT_EQ(run.State(0), states[0]);
    EXPECT_EQ(run.State(1), states[1]);
  }
}

// A row that is in its state already has the same outputs once more, and changes nothing.
void CheckRowsInTheirState(Ops& ops, const Shapes& shapes, const Tolerance&) {
  for (const RecurrentShape& shape : shapes) {
    const auto columns = int64_t{shape.value_heads} * shape.value_dim;
    for (const int32_t rows : {1, 2, 4, 9}) {
      RecurrentRun run(ops, shape, 1, kRows, kBlockBytes[rows % 2]);
      const RecurrentRun::Part part = {0, rows};
      const std::vector<float> all = run.Step({&part, 1});
      const std::vector<float> state = run.State(0);
      const RecurrentRun::Part again = {.sequence = 0, .rows = 1, .in_state = true};
      EXPECT_EQ(run.Step({&again, 1}), std::vector<float>(all.end() - columns, all.end()));
      EXPECT_EQ(run.State(0), state);
    }
  }
}

using Check = void (*)(Ops&, const Shapes&, const Tolerance&);

Case MakeCase(std::string name, Check check, const Shapes& shapes) {
  return {std::move(name), [check, &shapes](Ops& ops, const Tolerance& tolerance) {
            if (ops.recurrent_ops() == nullptr) GTEST_SKIP() << "this backend has no such layers";
            check(ops, shapes, tolerance);
          }};
}

}  // namespace

std::vector<Case> RecurrentCases() {
  const std::pair<std::string, const Shapes&> rules[] = {{"DeltaNet", kDeltaShapes},
                                                         {"ChannelDelta", kChannelDeltaShapes},
                                                         {"StateSpace", kStateSpaceShapes},
                                                         {"SelectiveScan", kScanShapes}};
  std::vector<Case> cases;
  for (const auto& [rule, shapes] : rules) {
    cases.push_back(MakeCase(rule + "Results", CheckResults, shapes));
    cases.push_back(MakeCase(rule + "Chunks", CheckChunks, shapes));
    cases.push_back(MakeCase(rule + "Chains", CheckChains, shapes));
    cases.push_back(MakeCase(rule + "Prompts", CheckPrompts, shapes));
    cases.push_back(MakeCase(rule + "ChainsOfSingleRows", CheckChainsOfSingleRows, shapes));
    cases.push_back(MakeCase(rule + "RowsInTheirState", CheckRowsInTheirState, shapes));
  }
  return cases;
}

}  // namespace baton::parity
