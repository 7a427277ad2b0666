#include <cmath>

#include <gtest/gtest.h>

#include "tests/parity/delta_net_run.h"
#include "tests/parity/parity.h"

// Gated delta nets beside plain loops in double precision, and with other borders of steps.
namespace baton::parity {
namespace {

// Sizes that are no multiples of a vector.
constexpr DeltaNetShape kShapes[] = {
    {.key_heads = 3, .value_heads = 6, .key_dim = 20, .value_dim = 85, .kernel = 4},
    {.key_heads = 2, .value_heads = 2, .key_dim = 7, .value_dim = 9, .kernel = 3},
    {.key_heads = 1, .value_heads = 4, .key_dim = 16, .value_dim = 64, .kernel = 1}};
constexpr int32_t kRows = 30;

void CheckResults(Ops& ops, const Tolerance& tolerance) {
  for (const DeltaNetShape& shape : kShapes) {
    SCOPED_TRACE(shape.value_dim);
    DeltaNetRun run(ops, shape, 3, kRows);
    const std::vector<float> got = run.Compute();
    const std::vector<double> want = run.Expected();
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i) {
      ASSERT_NEAR(got[i], want[i], 10 * tolerance.attention * (1 + std::fabs(want[i])))
          << "number " << i;
    }
  }
}

// The rows of one sequence, alone, in steps of `chunk` rows.
std::vector<float> InChunks(DeltaNetRun& run, int32_t chunk) {
  run.Reset();
  std::vector<float> all;
  for (int32_t first = 0; first < kRows; first += chunk) {
    const DeltaNetRun::Part part = {0, std::min(chunk, kRows - first), first % 2 == 0};
    const std::vector<float> rows = run.Step({&part, 1});
    all.insert(all.end(), rows.begin(), rows.end());
  }
  return all;
}

void CheckChunks(Ops& ops, const Tolerance&) {
  for (const DeltaNetShape& shape : kShapes) {
    DeltaNetRun run(ops, shape, 1, kRows);
    const std::vector<float> want = InChunks(run, kRows);
    const std::vector<float> state = run.State(0);
    for (int32_t chunk = 1; chunk < kRows; ++chunk) {
      ASSERT_EQ(InChunks(run, chunk), want) << "chunks of " << chunk;
      ASSERT_EQ(run.State(0), state) << "chunks of " << chunk;
    }
  }
}

// Rows of one sequence that are listed as several sequences of one step.
void CheckChains(Ops& ops, const Tolerance&) {
  using Part = DeltaNetRun::Part;
  DeltaNetRun run(ops, kShapes[0], 2, kRows);
  const std::vector<Part> apart[] = {{{0, 5}, {1, 4}}, {{0, 1}}, {{0, 1}, {1, 1}}, {{0, 3}}};
  std::vector<float> first, second;
  const int64_t columns = int64_t{kShapes[0].value_heads} * kShapes[0].value_dim;
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

// A row that is in its state already has the same outputs once more, and changes nothing.
void CheckRowsInTheirState(Ops& ops, const Tolerance&) {
  for (const DeltaNetShape& shape : kShapes) {
    const auto columns = int64_t{shape.value_heads} * shape.value_dim;
    for (const int32_t rows : {1, 2, 4, 9}) {
      DeltaNetRun run(ops, shape, 1, kRows);
      const DeltaNetRun::Part part = {0, rows};
      const std::vector<float> all = run.Step({&part, 1});
      const std::vector<float> state = run.State(0);
      const DeltaNetRun::Part again = {.sequence = 0, .rows = 1, .in_state = true};
      EXPECT_EQ(run.Step({&again, 1}), std::vector<float>(all.end() - columns, all.end()));
      EXPECT_EQ(run.State(0), state);
    }
  }
}

Case MakeCase(const char* name, void (*check)(Ops&, const Tolerance&)) {
  return {name, [check](Ops& ops, const Tolerance& tolerance) {
            if (ops.delta_net_ops() == nullptr) GTEST_SKIP() << "this backend has no delta nets";
            check(ops, tolerance);
          }};
}

}  // namespace

std::vector<Case> DeltaNetCases() {
  return {MakeCase("DeltaNetResults", CheckResults),
          MakeCase("DeltaNetChunks", CheckChunks),
          MakeCase("DeltaNetChains", CheckChains),
          MakeCase("DeltaNetRowsInTheirState", CheckRowsInTheirState)};
}

}  // namespace baton::parity
