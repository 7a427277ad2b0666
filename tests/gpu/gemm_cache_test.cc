#include <cuda_runtime_api.h>

#include <filesystem>
#include <string>

#include <gtest/gtest.h>

#include "kernels/cuda/gemm/gemm.h"
#include "tests/gpu/gemm_fixture.h"
#include "tests/gpu/test_device.h"

// The cache of GEMM algorithms, with real algorithms of cuBLASLt.
namespace baton::cuda {
namespace {

constexpr int32_t kMaxRows = 1024;

class GemmCacheTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!HaveGpu()) GTEST_SKIP() << "no GPU: the cache of algorithms was NOT tested";
    std::string name = ::testing::TempDir() + "gemm_cache.XXXXXX";
    folder_ = mkdtemp(name.data());
  }
  void TearDown() override {
    if (!folder_.empty()) std::filesystem::remove_all(folder_);
  }

  std::unique_ptr<Gemm> Open() {
    auto gemm = Gemm::Create(TestedDevice(), {.cache_folder = folder_});
    EXPECT_TRUE(gemm.ok()) << gemm.status().ToString();
    return *std::move(gemm);
  }

  static testing::GemmFixture::Launch Through(Gemm& gemm) {
    return [&gemm](const GemmProblem& problem) {
      EXPECT_TRUE(gemm.Prepare(problem, nullptr).ok());
      return gemm.Launch(problem, nullptr);
    };
  }

  std::string folder_;
};

TEST_F(GemmCacheTest, ALaterProcessTimesNothingAndGivesTheProduct) {
  for (const bool accumulate : {false, true}) {
    testing::GemmFixture fixture(
        {.name = "cache", .n = 1536, .k = 512, .accumulate = accumulate, .f32 = accumulate},
        kMaxRows);
    const auto first = Open();
    for (const int32_t rows : {300, 500, 1024}) fixture.Expect(rows, Through(*first));
    EXPECT_TRUE(first->has_timed());
    ASSERT_TRUE(first->WriteCache().ok());

    const auto second = Open();
    // The largest number of rows comes first: it takes the smaller row classes from the cache.
    for (const int32_t rows : {1024, 500, 300}) fixture.Expect(rows, Through(*second));
    EXPECT_FALSE(second->has_timed());
    fixture.Expect(700, Through(*second));
    EXPECT_TRUE(second->has_timed()) << "700 rows are a row class of their own";
  }
}

TEST_F(GemmCacheTest, WithoutAFolderNothingIsWritten) {
  testing::GemmFixture fixture({.name = "none", .n = 1536, .k = 512}, kMaxRows);
  const auto gemm = Gemm::Create(TestedDevice(), {});
  ASSERT_TRUE(gemm.ok());
  fixture.Expect(600, Through(**gemm));
  EXPECT_TRUE((*gemm)->has_timed());
  EXPECT_TRUE((*gemm)->WriteCache().ok());
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

}  // namespace
}  // namespace baton::cuda
