#include "kernels/cpu/cpu_backend.h"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <set>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "kernels/cpu/half.h"
#include "kernels/cpu/packed_matrix.h"
#include "kernels/cpu/rope_table.h"
#include "kernels/sampling.h"
#include "tests/parity/group_weights.h"
#include "tests/parity/host_weights.h"
#include "tests/parity/weight_types.h"

namespace baton {
namespace {

TEST(CpuBackendTest, RefusesBadOptions) {
  CpuDevice device;
  for (const int threads : {-1, 0, 257}) {
    const auto ops = MakeCpuOps(device, {threads, BestCpuIsa()});
    EXPECT_EQ(ops.status().code(), StatusCode::kInvalidArgument);
    EXPECT_NE(Message(ops.status()).find(std::to_string(threads)), std::string_view::npos);
  }
}

// The bytes of numbers, scales and zero points in a file.
size_t FileBytes(const parity::HostWeights& weights) {
  constexpr size_t kScaleBytes[] = {4, 2, 2, 1, 1};  // by ScaleType
  const size_t scale_bytes = kScaleBytes[static_cast<size_t>(weights.groups.scale_type)];
  const size_t zero_bits = weights.dtype == DType::kU4 ? 4 : 8;
  return weights.bytes.size() + weights.scales.size() * scale_bytes +
         weights.zeros.size() * zero_bits / 8;
}

TEST(CpuBackendTest, KeepsWeightsWithGroupsInTheSizeThatTheyHaveInFiles) {
  // Panels have scales for each output and block of 32 inputs, where groups are not powers of two
  // of blocks or begin within panels, and a byte for each integer with scales for 16 inputs.
  const std::set<std::string_view> larger = {
      "ct_g16", "ct_g48_zeros", "ct_g96", "fp8_blocks_of_10_rows"};
  CpuDevice device;
  const auto ops = MakeCpuOps(device, {1, BestCpuIsa()});
  ASSERT_TRUE(ops.ok()) << ops.status();
  for (const parity::GroupForm& form : parity::GroupForms()) {
    if (larger.contains(form.name)) continue;
    const auto weights = parity::RandomGroupWeights(form, 512, 1024, 1);
    const HostMatrix host = weights.matrix();
    const auto matrix = (*ops)->LoadMatrix({&host, 1});
    ASSERT_TRUE(matrix.ok()) << matrix.status();
    EXPECT_LE(static_cast<double>((*matrix)->bytes()),
              1.02 * static_cast<double>(FileBytes(weights)))
        << form.name;
  }
}

TEST(CpuBackendTest, KeepsBlocksInTheSizeThatTheyHaveInFiles) {
  CpuDevice device;
  const auto ops = MakeCpuOps(device, {1, BestCpuIsa()});
  ASSERT_TRUE(ops.ok()) << ops.status();
  for (const DType dtype : kBlockTypes) {
    const auto weights = parity::RandomWeights(dtype, 512, 1024, 1);
    const HostMatrix host = weights.matrix();
    const auto matrix = (*ops)->LoadMatrix({&host, 1});
    ASSERT_TRUE(matrix.ok()) << matrix.status();
    // Integers of 2 and 3 bits are stored in 4, and the scales of 6 bits beside some in 8.
    const double most = dtype == DType::kQ2_K ? 1.77 : dtype == DType::kQ3_K ? 1.33 : 1.02;
    EXPECT_LE(static_cast<double>((*matrix)->bytes()),
              most * static_cast<double>(weights.bytes.size()))
        << Name(dtype);
  }
}

TEST(CpuBackendTest, RefusesScalesOfBlocksThatAreNotFinite) {
  CpuDevice device;
  const auto ops = MakeCpuOps(device, {2, BestCpuIsa()});
  ASSERT_TRUE(ops.ok()) << ops.status();
  const auto error = [&](const parity::HostWeights& weights) {
    const HostMatrix host = weights.matrix();
    return std::string(Message((*ops)->LoadMatrix({&host, 1}).status()));
  };
  for (const DType dtype : kBlockTypes) {
    const auto good = parity::RandomWeights(dtype, 40, 512, 1);
    const size_t last = good.bytes.size() - ShapeOf(dtype).bytes;
    const std::string want =
        "a scale that is not finite among its blocks of " + std::string(Name(dtype));
    for (const size_t at : parity::HalfOffsets(dtype)) {
      for (const uint8_t high : {0x7c, 0xfc, 0x7e}) {  // infinities and NaN
        auto bad = good;
        bad.bytes[last + at + 1] = std::byte{high};
        EXPECT_NE(error(bad).find(want), std::string::npos) << Name(dtype) << " at " << at;
      }
    }
    if (dtype != DType::kMxfp4) continue;
    auto bad = good;
    bad.bytes[last] = std::byte{255};
    EXPECT_NE(error(bad).find(want), std::string::npos);
    bad.bytes[last] = std::byte{254};
    EXPECT_EQ(error(bad), "");
  }
}

// The kernels do not know the NaN of FP8.
TEST(CpuBackendTest, RefusesNanAmongWeightsOfFp8) {
  CpuDevice device;
  const auto ops = MakeCpuOps(device, {2, BestCpuIsa()});
  ASSERT_TRUE(ops.ok()) << ops.status();
  for (const parity::GroupForm& form : parity::GroupForms()) {
    if (form.dtype != DType::kFp8) continue;
    auto weights = parity::RandomGroupWeights(form, 40, 128, 1);
    weights.bytes[1000] = std::byte{0xff};
    const HostMatrix host = weights.matrix();
    EXPECT_NE(Message((*ops)->LoadMatrix({&host, 1}).status()).find("NaN among its numbers of fp8"),
              std::string_view::npos);
  }
}

// A word of the vocabulary is a row of the matrix, whatever its groups are.
TEST(CpuBackendTest, ReadsRowsOfWeightsWithGroups) {
  CpuDevice device;
  const auto ops = MakeCpuOps(device, {1, BestCpuIsa()});
  ASSERT_TRUE(ops.ok()) << ops.status();
  for (const parity::GroupForm& form : parity::GroupForms()) {
    const auto weights = parity::RandomGroupWeights(form, 40, 384, 1);
    const HostMatrix host = weights.matrix();
    const auto matrix = (*ops)->LoadMatrix({&host, 1});
    ASSERT_TRUE(matrix.ok()) << matrix.status();
    std::vector<float> row(384);
    for (const int64_t r : {0, 17, 39}) {
      static_cast<const cpu::PackedMatrix&>(**matrix).Row(r, row.data());
      for (size_t k = 0; k < row.size(); ++k) {
        const float want = weights.values[static_cast<size_t>(r) * 384 + k];
        ASSERT_NEAR(row[k], want, 1e-6 * std::fabs(want)) << form.name << ", row " << r;
      }
    }
  }
}

TEST(CpuDeviceTest, AllocatesZeroedAlignedMemory) {
  CpuDevice device;
  for (const Sharing sharing : {Sharing::kPrivate, Sharing::kShared}) {
    auto buffer = device.Allocate(5 << 20, sharing);
    ASSERT_TRUE(buffer.ok()) << buffer.status();
    EXPECT_EQ((*buffer)->size(), size_t{5} << 20);
    EXPECT_EQ(reinterpret_cast<uintptr_t>((*buffer)->data()) % 4096, 0U);
    const auto* bytes = (*buffer)->data();
    EXPECT_TRUE(std::all_of(bytes, bytes + 4096, [](std::byte b) { return b == std::byte{0}; }));
    EXPECT_EQ((*buffer)->shared_fd() >= 0, sharing == Sharing::kShared);
  }
}

TEST(CpuDeviceTest, SharedMemoryIsSeenThroughItsDescriptor) {
  CpuDevice device;
  const auto buffer = *device.Allocate(8192, Sharing::kShared);
  const std::byte value[] = {std::byte{42}};
  ASSERT_TRUE(device.CopyIn(*buffer, 5000, value).ok());
  void* other = ::mmap(nullptr, 8192, PROT_READ, MAP_SHARED, buffer->shared_fd(), 0);
  ASSERT_NE(other, MAP_FAILED);
  EXPECT_EQ(static_cast<const std::byte*>(other)[5000], std::byte{42});
  ::munmap(other, 8192);
}

TEST(CpuDeviceTest, RefusesWhatDoesNotFit) {
  CpuDevice device;
  EXPECT_EQ(device.Allocate(size_t{1} << 62, Sharing::kPrivate).status().code(),
            StatusCode::kResourceExhausted);
  const auto buffer = *device.Allocate(100, Sharing::kPrivate);
  std::vector<std::byte> bytes(60);
  EXPECT_TRUE(device.CopyOut(*buffer, 40, bytes).ok());
  EXPECT_EQ(device.CopyOut(*buffer, 41, bytes).code(), StatusCode::kOutOfRange);
  EXPECT_EQ(device.CopyIn(*buffer, SIZE_MAX, bytes).code(), StatusCode::kOutOfRange);
  EXPECT_GT(device.free_bytes(), size_t{1} << 20);
}

TEST(HalfTest, AllPatterns) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float want = parity::HalfToFloat(half);
    const float got = cpu::FloatFromHalf(half);
    if (std::isnan(want)) {
      EXPECT_TRUE(std::isnan(got)) << bits;
      continue;
    }
    ASSERT_EQ(std::bit_cast<uint32_t>(want), std::bit_cast<uint32_t>(got)) << bits;
    ASSERT_EQ(cpu::HalfFromFloat(got), half);
    if (std::isinf(want)) continue;
    // A value between this half and the next one is rounded.
    const float between = want + std::fabs(want) * 0.0004f;
    ASSERT_EQ(cpu::HalfFromFloat(between), parity::FloatToHalf(between)) << between;
  }
}

TEST(UniformDrawTest, IsPhilox) {
  // The known answer of Random123 for a zero counter and key: 6627e8d5 e169c58d bc57ac4c 9b00dbd8.
  EXPECT_EQ(UniformDraw(0, 0), static_cast<double>(0x6627e8d5e169c58dULL >> 11) * 0x1p-53);
  EXPECT_NE(UniformDraw(0, 1), UniformDraw(1, 0));
}

TEST(RopeTablesTest, AgreesWithTheLibrary) {
  class Frequencies final : public Vector {
    int64_t size() const override { return 3; }
  };
  const Frequencies vector;
  const float values[] = {1.0f, 0.1f, 1.7e-4f};
  std::vector<int32_t> positions;
  for (int32_t i = 0; i < 1000; ++i) positions.push_back(i * 1049);
  cpu::RopeTables tables;
  const auto view = tables.Get(vector, values, 1.0f, positions);
  for (size_t row = 0; row < positions.size(); ++row) {
    for (size_t i = 0; i < 3; ++i) {
      const double angle = positions[row] * static_cast<double>(values[i]);
      ASSERT_NEAR(view.cos[row * 3 + i], std::cos(angle), 1e-7) << angle;
      ASSERT_NEAR(view.sin[row * 3 + i], std::sin(angle), 1e-7) << angle;
    }
  }
}

}  // namespace
}  // namespace baton
