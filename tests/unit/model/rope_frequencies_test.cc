#include "common/model/rope_frequencies.h"

#include <cmath>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace baton {
namespace {

using Expected = std::vector<std::pair<size_t, double>>;

void ExpectFrequencies(const RopeSpec& rope, const Expected& expected) {
  const RopeFrequencies found = ComputeRopeFrequencies(rope, {});
  ASSERT_EQ(found.inverse.size(), static_cast<size_t>(rope.rotary_dim / 2));
  for (const auto& [index, value] : expected) {
    EXPECT_NEAR(found.inverse[index], value, 2e-6 * value) << "pair " << index;
  }
}

// The expected numbers were computed with numpy from the formulas in modeling_rope_utils of
// transformers.

TEST(RopeFrequencies, PlainIsAPowerOfTheta) {
  RopeSpec rope;
  rope.rotary_dim = 8;
  rope.theta = 10000;
  ExpectFrequencies(rope, {{0, 1.0}, {1, 0.1}, {2, 0.01}, {3, 0.001}});
  EXPECT_EQ(ComputeRopeFrequencies(rope, {}).magnitude, 1.0f);
}

TEST(RopeFrequencies, LinearDividesAll) {
  RopeSpec rope;
  rope.rotary_dim = 8;
  rope.scaling = RopeScaling::kLinear;
  rope.factor = 4;
  ExpectFrequencies(rope, {{0, 0.25}, {1, 0.025}, {2, 0.0025}, {3, 0.00025}});
}

TEST(RopeFrequencies, Llama3KeepsHighAndDividesLow) {
  RopeSpec rope;
  rope.theta = 5e5;
  rope.rotary_dim = 128;
  rope.scaling = RopeScaling::kLlama3;
  rope.factor = 8;
  rope.original_context = 8192;
  ExpectFrequencies(rope,
                    {{0, 1.0},
                     {20, 0.016560440080994446},
                     {28, 0.0032114459947525913},
                     {29, 0.002166570763503359},
                     {30, 0.0013718935677611381},
                     {32, 0.0005248461609929547},
                     {34, 0.00017850781276799638},
                     {35, 9.556212353964683e-05},
                     {36, 7.78465527393245e-05},
                     {50, 4.411534674558404e-06},
                     {63, 3.068925988914511e-07}});
}

RopeSpec Yarn() {
  RopeSpec rope;
  rope.theta = 1e6;
  rope.rotary_dim = 128;
  rope.scaling = RopeScaling::kYarn;
  rope.factor = 4;
  rope.original_context = 32768;
  return rope;
}

TEST(RopeFrequencies, YarnRampsBetweenWholeDimensions) {
  ExpectFrequencies(Yarn(),
                    {{0, 1.0},
                     {10, 0.11547820270061493},
                     {23, 0.006978305988013744},
                     {25, 0.004131738096475601},
                     {30, 0.001064361073076725},
                     {35, 0.0002462583943270147},
                     {39, 6.490394298452884e-05},
                     {40, 4.4456985051510856e-05},
                     {63, 3.102344408034696e-07}});
  EXPECT_FLOAT_EQ(ComputeRopeFrequencies(Yarn(), {}).magnitude, 1.138629436111989f);
}

TEST(RopeFrequencies, YarnRampsBetweenExactDimensionsWithoutTruncation) {
  RopeSpec rope = Yarn();
  rope.truncate = false;
  rope.attention_factor = 1.5;
  ExpectFrequencies(rope,
                    {{25, 0.004234357737004757},
                     {30, 0.001079237787052989},
                     {35, 0.00024451888748444617},
                     {39, 6.187807593960315e-05}});
  EXPECT_FLOAT_EQ(ComputeRopeFrequencies(rope, {}).magnitude, 1.5f);
}

TEST(RopeFrequencies, FactorsOfTheFileDivide) {
  RopeSpec rope;
  rope.rotary_dim = 4;
  const std::vector<float> factors = {1, 8};
  const RopeFrequencies found = ComputeRopeFrequencies(rope, factors);
  EXPECT_FLOAT_EQ(found.inverse[0], 1.0f);
  EXPECT_FLOAT_EQ(found.inverse[1], 0.01f / 8);
}

}  // namespace
}  // namespace baton
