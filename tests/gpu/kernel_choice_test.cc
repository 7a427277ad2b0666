#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/cuda/attention/decode_dispatch.h"
#include "kernels/cuda/device/device_properties.h"
#include "kernels/cuda/gemm/gemm_dispatch.h"
#include "kernels/cuda/gemm/sequential_gemm.h"

// Which kernels run on which GPU, as the host decides.
namespace baton::cuda {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// A GPU with code for itself, and the shared memory of its architecture.
DeviceProperties Card(int32_t architecture) {
  const bool large = architecture == 90 || architecture / 10 == 10;
  DeviceProperties device;
  device.architecture = device.code_architecture = architecture;
  device.sm_count = 108;
  device.block_shared_bytes = (large ? 227 : architecture == 80 ? 163 : 99) << 10;
  device.l2_bytes = int64_t{40} << 20;
  return device;
}

DeviceProperties PortableOnHopper() {
  DeviceProperties device = Card(90);
  device.portable = true;
  return device;
}

// An H200 that runs PTX for sm_80.
DeviceProperties OldCodeOnHopper() {
  DeviceProperties device = Card(90);
  device.code_architecture = 80;
  return device;
}

// All on which Hopper's kernels must not run.
std::vector<DeviceProperties> WithoutHopperKernels() {
  return {Card(80),
          Card(86),
          Card(89),
          Card(100),
          Card(103),
          Card(120),
          PortableOnHopper(),
          OldCodeOnHopper()};
}

// The kernel with whose bits those of cuBLASLt are compared, and which computes what cuBLASLt
// cannot in this order.
TEST(KernelChoice, DeterministicGemmsHaveAKernelOfOneOrderEverywhere) {
  GemmProblem problem;
  problem.rows = 70;
  problem.n = problem.out_stride = 4096;
  problem.k = problem.x_stride = 4096;
  EXPECT_EQ(SequentialKernel(problem, Card(90)), KernelId::kSequentialGemm);
  problem.k = problem.x_stride = 72;  // no span of TMA
  EXPECT_EQ(SequentialKernel(problem, Card(90)), KernelId::kPortableGemm);
  problem.k = problem.x_stride = 4096;
  for (const DeviceProperties& device : WithoutHopperKernels()) {
    SCOPED_TRACE(device.architecture);
    problem.x_dtype = problem.weight_dtype = DType::kBF16;
    EXPECT_EQ(SequentialKernel(problem, device), KernelId::kPortableGemm);
    problem.x_dtype = problem.weight_dtype = DType::kFp8;
    const auto fp8 = SequentialKernel(problem, device);
    EXPECT_EQ(fp8.has_value(), SupportsFp8(device));
    EXPECT_EQ(fp8.value_or(KernelId::kPortableFp8Gemm), KernelId::kPortableFp8Gemm);
  }
}

TEST(KernelChoice, EachFamilyRunsWhereItsInstructionsExist) {
  for (const int32_t architecture : {80, 86, 89, 90, 100, 103, 120}) {
    const DeviceProperties device = Card(architecture);
    SCOPED_TRACE(architecture);
    EXPECT_TRUE(MayRun(KernelFamily::kPortable, device));
    EXPECT_EQ(MayRun(KernelFamily::kClusters, device), architecture >= 90);
    EXPECT_EQ(MayRun(KernelFamily::kHopper, device), architecture == 90);
    EXPECT_EQ(SupportsFp8(device), architecture >= 89);
  }
  for (const DeviceProperties& device : {PortableOnHopper(), OldCodeOnHopper()}) {
    EXPECT_TRUE(MayRun(KernelFamily::kPortable, device));
    EXPECT_FALSE(MayRun(KernelFamily::kClusters, device));
    EXPECT_FALSE(MayRun(KernelFamily::kHopper, device));
  }
  EXPECT_FALSE(MayRun(KernelFamily::kPortable, Card(75)));
}

TEST(KernelChoice, GemmsAreCublasLtsWhereOurOwnKernelsCannotRun) {
  GemmProblem problem;
  problem.n = 28672;
  problem.k = problem.x_stride = 4096;
  problem.out_stride = problem.n;
  const auto kernel = [&](int32_t rows, const DeviceProperties& device, bool silu_mul = false) {
    problem.rows = rows;
    problem.silu_mul = silu_mul;
    return ChooseGemmKernel(problem, device);
  };
  EXPECT_EQ(kernel(1, Card(90)), KernelId::kGemv);
  EXPECT_EQ(kernel(8, Card(90)), KernelId::kSkinnyGemm);
  EXPECT_EQ(kernel(64, Card(90), true), KernelId::kGatedGemm);
  EXPECT_EQ(kernel(64, Card(90)), KernelId::kCublas);
  for (const DeviceProperties& device : WithoutHopperKernels()) {
    SCOPED_TRACE(device.architecture);
    for (const int32_t rows : {1, 8, 64, 300}) {
      EXPECT_EQ(kernel(rows, device), KernelId::kCublas);
      EXPECT_EQ(kernel(rows, device, true), KernelId::kCublas);
    }
  }
}

TEST(KernelChoice, PackedWeightsAreWidenedForManyRowsAlone) {
  GemmProblem problem;
  problem.weight_dtype = DType::kU4;
  problem.packed = {.number = DType::kU4, .group = 128, .zero = 8};
  problem.n = problem.out_stride = 6144;
  problem.k = problem.x_stride = 2880;
  const auto kernel = [&](int32_t rows, int32_t architecture, bool deterministic = false) {
    problem.rows = rows;
    return ChooseGemmKernel(problem, Card(architecture), deterministic);
  };
  EXPECT_EQ(kernel(1, 90), KernelId::kPackedGemm);
  EXPECT_EQ(kernel(64, 90), KernelId::kPackedGemm);
  EXPECT_EQ(kernel(65, 90), KernelId::kWidenedGemm);
  EXPECT_EQ(kernel(8, 90, true), KernelId::kWidenedGemm);
  EXPECT_EQ(kernel(8, 80), KernelId::kWidenedGemm);
  problem.silu_mul = true;
  EXPECT_EQ(kernel(8, 90), KernelId::kPackedGemm);
  problem.n = 6144 + 64;  // a tile with outputs of both gate and up
  EXPECT_EQ(kernel(8, 90), KernelId::kCublas) << "no kernel, so that silu · up is not fused";
  problem.silu_mul = false;
  EXPECT_EQ(kernel(8, 90), KernelId::kPackedGemm);
  problem.k = 2880 + 8;
  EXPECT_EQ(kernel(8, 90), KernelId::kWidenedGemm);
}

// cuBLASLt may not divide k, so it leaves most SMs idle.
TEST(KernelChoice, DeterministicGemmsOfFewOutputsAreOurOwn) {
  DeviceProperties device = Card(90);
  const auto kernel = [&](int32_t rows, int32_t n, int32_t k) {
    GemmProblem problem;
    problem.rows = rows;
    problem.n = n;
    problem.k = problem.x_stride = k;
    problem.out_stride = n;
    return ChooseGemmKernel(problem, device, /*deterministic=*/true);
  };
  device.sm_count = 132;
  for (const int32_t rows : {1, 64, 128, 256}) {
    EXPECT_EQ(kernel(rows, 2048, 14336), KernelId::kSequentialGemm) << rows << " rows";
  }
  EXPECT_EQ(kernel(257, 2048, 14336), KernelId::kCublas);
  EXPECT_EQ(kernel(128, 4096, 14336), KernelId::kSequentialGemm);
  EXPECT_EQ(kernel(129, 4096, 14336), KernelId::kCublas);
  EXPECT_EQ(kernel(128, 4096, 4096), KernelId::kCublas) << "cuBLASLt fills the SMs in time";
  device.sm_count = 114;
  EXPECT_EQ(kernel(256, 2048, 14336), KernelId::kCublas) << "the tiles do not all run at a time";
  EXPECT_EQ(kernel(128, 2048, 14336), KernelId::kSequentialGemm);
}

// A k whose inputs do not fit shared memory beside the rings of weights.
TEST(KernelChoice, AGemmThatWantsMoreSharedMemoryTakesAnotherKernel) {
  GemmProblem problem;
  problem.rows = 1;
  problem.n = 4096;
  problem.k = problem.x_stride = 32768;
  problem.out_stride = problem.n;
  EXPECT_EQ(ChooseGemmKernel(problem, Card(90)), KernelId::kGemv);
  problem.k = problem.x_stride = 49152;
  EXPECT_EQ(ChooseGemmKernel(problem, Card(90)), KernelId::kSkinnyGemm);
}

TEST(KernelChoice, SingleRowsOfOtherCardsUseFlashAttention2) {
  AttentionShape shape;
  shape.q_heads = 32;
  shape.kv_heads = 8;
  shape.head_dim = 128;
  KvView kv;
  kv.dtype = DType::kBF16;
  kv.kv_heads = 8;
  kv.head_dim = 128;
  kv.block_tokens = 16;
  kv.head_stride = int64_t{16} * 128 * 2;
  const std::vector<AttentionSequence> sequences(64, {0, 0, 1, 2048, 0});
  const DecodeBatch rows = DecodeBatchOf(sequences, 0, 64);
  const auto kernel = [&](const DeviceProperties& device, bool deterministic) {
    return ChooseDecodeKernel({.deterministic = deterministic}, LimitsOf(device), shape, kv, rows);
  };
  EXPECT_EQ(kernel(Card(90), false), DecodeKernel::kStreamK);
  for (const DeviceProperties& device : WithoutHopperKernels()) {
    SCOPED_TRACE(device.architecture);
    EXPECT_EQ(LimitsOf(device).device.sm_count, device.sm_count);
    const bool clusters = device.architecture >= 100;
    EXPECT_EQ(LimitsOf(device).clusters, clusters);
    EXPECT_EQ(kernel(device, true), clusters ? DecodeKernel::kCluster : DecodeKernel::kFlash2);
    if (clusters) continue;
    EXPECT_EQ(kernel(device, false), DecodeKernel::kFlash2);
  }
}

TEST(KernelChoice, ALibraryForOtherCardsNamesBoth) {
  const Status status = HasNoCode("cuda:0, a NVIDIA A100,", 80, "cudaErrorNoKernelImageForDevice");
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_THAT(
      std::string(Message(status)),
      testing::AllOf(HasSubstr("cuda:0, a NVIDIA A100, is of sm_80"),
                     HasSubstr("has code for " + std::string(BuiltArchitectures()) + " only"),
                     HasSubstr("BATON_CUDA_ARCHITECTURES=80-real")));
}

TEST(KernelChoice, AnyCardHasABuildThatRunsThere) {
  EXPECT_EQ(ArchitectureToBuild(86), "86-real");
  EXPECT_EQ(ArchitectureToBuild(90), "90a-real");
  EXPECT_EQ(ArchitectureToBuild(103), "103-real");
  // Machine code for older architectures of the same major number.
  EXPECT_EQ(ArchitectureToBuild(87), "86-real");
  EXPECT_EQ(ArchitectureToBuild(121), "120-real");
  EXPECT_EQ(ArchitectureToBuild(110), "80-virtual");
}

TEST(KernelChoice, Fp8IsRefusedWithWhatIsMissing) {
  EXPECT_TRUE(CheckFp8Weights(Card(89)).ok());
  EXPECT_TRUE(CheckFp8Weights(PortableOnHopper()).ok());
  EXPECT_EQ(Message(CheckFp8Weights(Card(86))),
            "the GEMMs of FP8 weights need a GPU of sm_89 or newer, and this one is sm_86; without "
            "fp8_weights they run in bf16");
  const std::string old_code(Message(CheckFp8Weights(OldCodeOnHopper())));
  EXPECT_THAT(old_code, HasSubstr("BATON_CUDA_ARCHITECTURES=90a-real"));
  EXPECT_THAT(old_code, Not(HasSubstr("need a GPU")));
}

}  // namespace
}  // namespace baton::cuda
