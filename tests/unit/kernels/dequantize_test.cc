#include "kernels/dequantize.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/base/mapped_file.h"
#include "tests/parity/host_weights.h"

namespace baton {
namespace {

std::vector<std::byte> FromHex(const std::string& hex) {
  std::vector<std::byte> bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

DType ByName(const std::string& name) {
  for (int i = 0; i < kDTypes; ++i) {
    if (Name(static_cast<DType>(i)) == name) return static_cast<DType>(i);
  }
  ADD_FAILURE() << "no type " << name;
  return DType::kF32;
}

TEST(Dequantize, EqualsTheGgufPackageForEveryType) {
  const auto text = ReadFile(std::string(BATON_TEST_DATA) + "/quants/quants.json");
  ASSERT_TRUE(text.ok()) << Message(text.status());
  const auto json = nlohmann::json::parse(*text);
  const auto& cases = json.at("cases");
  ASSERT_EQ(cases.size(), 16u);
  for (const auto& entry : cases) {
    SCOPED_TRACE(entry.at("type").get<std::string>());
    const DType type = ByName(entry.at("type"));
    const auto raw = FromHex(entry.at("raw"));
    const auto float_bytes = FromHex(entry.at("floats"));
    std::vector<float> expected(float_bytes.size() / sizeof(float));
    std::memcpy(expected.data(), float_bytes.data(), float_bytes.size());
    std::vector<float> found(expected.size());
    Dequantize(type, raw, found);
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSERT_EQ(std::bit_cast<uint32_t>(found[i]), std::bit_cast<uint32_t>(expected[i]))
          << "number " << i << ": " << found[i] << " instead of " << expected[i];
    }
  }
}

TEST(Dequantize, ReadsEveryHalf) {
  EXPECT_EQ(HalfToFloat(0x3c00), 1.0f);
  EXPECT_EQ(HalfToFloat(0xc000), -2.0f);
  EXPECT_EQ(HalfToFloat(0x7bff), 65504.0f);
  EXPECT_EQ(HalfToFloat(0x0001), 0x1p-24f);
  EXPECT_EQ(HalfToFloat(0x83ff), -1023 * 0x1p-24f);
  EXPECT_EQ(HalfToFloat(0x0400), 0x1p-14f);
  EXPECT_TRUE(std::signbit(HalfToFloat(0x8000)));
  EXPECT_EQ(HalfToFloat(0x7c00), std::numeric_limits<float>::infinity());
  EXPECT_TRUE(std::isnan(HalfToFloat(0x7e00)));
}

// Every E4M3 value must be unchanged by the independent rounding of the parity suite.
TEST(Dequantize, ReadsEveryE4M3Number) {
  std::set<float> numbers;
  for (int bits = 0; bits < 256; ++bits) {
    const auto byte = static_cast<std::byte>(bits);
    float value = 0;
    Dequantize(DType::kFp8, {&byte, 1}, {&value, 1});
    if ((bits & 127) == 127) {
      EXPECT_TRUE(std::isnan(value)) << bits;
      continue;
    }
    EXPECT_EQ(std::signbit(value), bits >= 128) << bits;
    EXPECT_EQ(parity::Rounded(DType::kFp8, value), value) << bits;
    numbers.insert(value);
  }
  EXPECT_EQ(numbers.size(), 253u);  // 256 less two NaN; +0 and −0 count once
  EXPECT_EQ(*numbers.rbegin(), 448.0f);
  EXPECT_TRUE(numbers.contains(0x1p-9f));
}

TEST(Dequantize, RoundsToBrainFloatsToEven) {
  EXPECT_EQ(FloatToBrain(1.0f), 0x3f80);
  EXPECT_EQ(FloatToBrain(std::bit_cast<float>(0x3f808000u)), 0x3f80);  // a tie, to even
  EXPECT_EQ(FloatToBrain(std::bit_cast<float>(0x3f818000u)), 0x3f82);
  EXPECT_EQ(FloatToBrain(std::bit_cast<float>(0x3f808001u)), 0x3f81);
  EXPECT_EQ(BrainToFloat(0xc040), -3.0f);
  EXPECT_TRUE(std::isnan(BrainToFloat(FloatToBrain(std::bit_cast<float>(0x7f800001u)))));
}

}  // namespace
}  // namespace baton
