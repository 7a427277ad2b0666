#include "kernels/cuda/gemm/algorithm_file.h"

#include <cstring>
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/mapped_file.h"

// The file of chosen GEMM algorithms. It needs no GPU.
namespace baton::cuda {
namespace {

using testing::HasSubstr;

constexpr std::string_view kCard = "NVIDIA H200, 132 SMs, driver 13000, cuBLASLt 130100";

ChosenAlgorithm Chosen(int32_t rows, uint64_t algorithm) {
  ChosenAlgorithm chosen = {.key = {.rows = rows,
                                    .n = 4096,
                                    .k = 14336,
                                    .x_stride = 28672,
                                    .out_stride = 4096,
                                    .dtype = DType::kFp8,
                                    .out_dtype = DType::kF32,
                                    .bias = true,
                                    .accumulate = true,
                                    .scaled = true,
                                    .alignment = {256, 16, 128}},
                            .algorithm = {}};
  std::memcpy(&chosen.algorithm, &algorithm, sizeof(algorithm));
  return chosen;
}

class AlgorithmFileTest : public testing::Test {
 protected:
  AlgorithmFileTest() {
    std::string name = testing::TempDir() + "algorithms.XXXXXX";
    folder_ = mkdtemp(name.data());
    path_ = AlgorithmPath(folder_ + "/kernels", kCard);
  }
  ~AlgorithmFileTest() override { std::filesystem::remove_all(folder_); }

  // Reads the file with the byte at `offset` changed.
  Status ReadChanged(size_t offset) {
    std::string bytes = *ReadFile(path_);
    bytes[offset] = static_cast<char>(bytes[offset] ^ 1);
    const std::string other = path_ + ".changed";
    std::ofstream(other, std::ios::binary) << bytes;
    return ReadAlgorithms(other, kCard).status();
  }

  std::string folder_;
  std::string path_;
};

TEST_F(AlgorithmFileTest, GivesBackWhatWasWritten) {
  const std::vector<ChosenAlgorithm> algorithms = {Chosen(320, 7), Chosen(8192, 9)};
  ASSERT_TRUE(WriteAlgorithms(path_, kCard, algorithms).ok());
  const auto found = ReadAlgorithms(path_, kCard);
  ASSERT_TRUE(found.ok()) << found.status().ToString();
  ASSERT_EQ(found->size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ((*found)[i].key, algorithms[i].key);
    EXPECT_EQ(
        std::memcmp(&(*found)[i].algorithm, &algorithms[i].algorithm, sizeof(cublasLtMatmulAlgo_t)),
        0);
  }
}

TEST_F(AlgorithmFileTest, TheNewFileReplacesTheOldOne) {
  ASSERT_TRUE(WriteAlgorithms(path_, kCard, {Chosen(16, 1)}).ok());
  ASSERT_TRUE(WriteAlgorithms(path_, kCard, {Chosen(32, 2), Chosen(48, 3)}).ok());
  EXPECT_EQ(ReadAlgorithms(path_, kCard)->size(), 2u);
  const std::filesystem::directory_iterator files(folder_ + "/kernels");
  EXPECT_EQ(std::distance(files, {}), 1);
}

TEST_F(AlgorithmFileTest, WithoutAFileThereIsNothing) {
  EXPECT_EQ(ReadAlgorithms(path_, kCard).status().code(), StatusCode::kNotFound);
}

TEST_F(AlgorithmFileTest, RefusesTheFileOfAnotherCard) {
  ASSERT_TRUE(WriteAlgorithms(path_, "NVIDIA H100", {Chosen(16, 1)}).ok());
  const Status status = ReadAlgorithms(path_, kCard).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("written for 'NVIDIA H100'"));
  EXPECT_NE(AlgorithmPath("x", kCard), AlgorithmPath("x", "NVIDIA H100"));
}

TEST_F(AlgorithmFileTest, RefusesEveryChangedByteAndEveryCut) {
  ASSERT_TRUE(WriteAlgorithms(path_, kCard, {Chosen(16, 1)}).ok());
  const std::string bytes = *ReadFile(path_);
  for (size_t at = 0; at < bytes.size(); ++at) {
    EXPECT_EQ(ReadChanged(at).code(), StatusCode::kInvalidArgument) << "byte " << at;
    const std::string cut = path_ + ".cut";
    std::ofstream(cut, std::ios::binary) << bytes.substr(0, at);
    EXPECT_EQ(ReadAlgorithms(cut, kCard).status().code(), StatusCode::kInvalidArgument) << at;
  }
}

TEST_F(AlgorithmFileTest, SaysWhyItCannotWrite) {
  std::ofstream(folder_ + "/kernels") << "a file where the folder should be";
  const Status status = WriteAlgorithms(path_, kCard, {Chosen(16, 1)});
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr(folder_ + "/kernels"));
}

}  // namespace
}  // namespace baton::cuda
