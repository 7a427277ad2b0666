#include "kernels/cuda/device/device_properties.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "kernels/cuda/primitives/loaded_code.h"
#include "tests/gpu/compiled_for.h"
#include "tests/gpu/test_device.h"

namespace baton::cuda {
namespace {

class DevicePropertiesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!HaveGpu()) GTEST_SKIP() << "no GPU: its properties were NOT tested";
  }
};

// The choice among kernels rests on this: kernels of Hopper are empty in code without its features.
TEST_F(DevicePropertiesTest, NamesTheCodeThatRuns) {
  CompiledFor compiled;
  ASSERT_EQ(FindCompiledFor(&compiled), cudaSuccess);
  const DeviceProperties device = TestedDevice();
  EXPECT_EQ(device.code_architecture, compiled.architecture);
  EXPECT_EQ(MayRun(KernelFamily::kHopper, device),
            compiled.has_hopper_features == 1 && !device.portable);
  EXPECT_EQ(OverlapsLaunches(), compiled.architecture >= 90);
}

TEST_F(DevicePropertiesTest, AreThoseOfACard) {
  const DeviceProperties device = TestedDevice();
  EXPECT_GE(device.architecture, kOldestArchitecture);
  EXPECT_GE(device.sm_count, 1);
  EXPECT_GE(device.block_shared_bytes, 99 << 10);
  EXPECT_GE(device.l2_bytes, 1 << 20);
}

}  // namespace
}  // namespace baton::cuda
