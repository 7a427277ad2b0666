#include "kernels/backend.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/cpu/cpu_isa.h"
#include "tests/fakes/thread_collective.h"

namespace baton {
namespace {

TEST(OpenBackend, RefusesWhatTheCpuHasNot) {
  const auto fp8 = OpenBackend({.device = "cpu", .fp8_weights = true, .cuda_library = {}});
  EXPECT_EQ(fp8.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Message(fp8.status()),
            "FP8 weights are for GPUs of sm_89 or newer; with device 'cpu' they must be off");
  const auto cpu = OpenBackend({.device = "cpu", .cuda_library = {}});
  ASSERT_TRUE(cpu.ok()) << cpu.status();
  EXPECT_FALSE((*cpu)->ops().supports_fp8_kv());
}

TEST(OpenBackend, RunsEachInstructionSetThatTheProcessorHas) {
  for (const CpuIsa isa : kCpuIsas) {
    const std::string name(Name(isa));
    const auto cpu = OpenBackend({.cpu_isa = name, .cuda_library = {}});
    if (Supported(isa)) {
      ASSERT_TRUE(cpu.ok()) << cpu.status();
      EXPECT_EQ((*cpu)->device().name(), "cpu " + name);
    } else {
      EXPECT_EQ(cpu.status().code(), StatusCode::kFailedPrecondition);
      EXPECT_THAT(Message(cpu.status()), testing::HasSubstr(name));
      EXPECT_THAT(Message(cpu.status()), testing::HasSubstr("it has portable"));
    }
  }
  const auto best = OpenBackend({.cuda_library = {}});
  ASSERT_TRUE(best.ok()) << best.status();
  EXPECT_EQ((*best)->device().name(), fmt::format("cpu {}", Name(BestCpuIsa())));
}

TEST(OpenBackend, NamesAnInstructionSetThatIsNone) {
  const auto cpu = OpenBackend({.cpu_isa = "avx9", .cuda_library = {}});
  EXPECT_EQ(Message(cpu.status()),
            "cpu_isa is 'avx9'; it must be one of auto, portable, avx2, avx_vnni, avx512, neon, "
            "neon_dotprod, neon_i8mm");
}

TEST(OpenBackend, ARankOfAGroupHasAnExchange) {
  ThreadGroup pair(2);
  BackendOptions options{.device = "cpu", .cuda_library = {}};
  options.groups.tensor = pair.rank(1);
  const auto cpu = OpenBackend(options);
  ASSERT_TRUE(cpu.ok()) << cpu.status();
  ASSERT_NE((*cpu)->ops().exchange(), nullptr);
  EXPECT_EQ((*cpu)->ops().exchange()->place(), (RankPlace{2, 1, 1, 0}));
}

TEST(OpenBackend, AGroupOfOneRankHasNoExchange) {
  ThreadGroup one(1);
  BackendOptions options{.device = "cpu", .cuda_library = {}};
  options.groups = {.tensor = one.rank(0), .pipeline = one.rank(0)};
  const auto cpu = OpenBackend(options);
  ASSERT_TRUE(cpu.ok()) << cpu.status();
  EXPECT_EQ((*cpu)->ops().exchange(), nullptr);
}

TEST(OpenBackend, NamesADeviceThatIsNone) {
  for (const char* device : {"", "gpu", "cuda", "cuda:", "cuda:x", "cuda:-1"}) {
    const auto opened = OpenBackend({.device = device, .cuda_library = {}});
    EXPECT_EQ(opened.status().code(), StatusCode::kInvalidArgument) << device;
  }
}

}  // namespace
}  // namespace baton
