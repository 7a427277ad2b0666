#include "common/model/weight_slice.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "common/base/check.h"
#include "common/model/dummy_weights.h"
#include "common/model/file_weights.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/dequantize.h"
#include "tests/parity/weight_types.h"
#include "tests/unit/model/gguf_writer.h"

// Slices of weights: from files, in each storage type, and from the generator.
namespace baton {
namespace {

using Bytes = std::vector<std::byte>;

constexpr int64_t kRows = 29;
constexpr int64_t kBlocks = 6;  // blocks in a row
constexpr int32_t kExperts = 3;
constexpr WeightId kQuery{WeightKind::kQuery, 0, -1};
constexpr WeightId kBias{WeightKind::kQueryBias, 0, -1};

Bytes RandomBytes(size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  Bytes bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

int64_t BlockOf(DType dtype) {
  return static_cast<int64_t>(ShapeOf(dtype).elements);
}

// A matrix, stacked experts and a vector of one type, whose bytes are random.
struct File {
  Bytes matrix;
  Bytes experts;
  std::vector<float> bias;
  Bytes bytes;
  std::unique_ptr<WeightSource> weights;
};

std::vector<float> Numbers(size_t count) {
  std::vector<float> numbers(count);
  for (size_t i = 0; i < count; ++i) numbers[i] = static_cast<float>(i) / 8;
  return numbers;
}

std::unique_ptr<File> GgufOf(DType dtype) {
  auto file = std::make_unique<File>();
  const int64_t cols = kBlocks * BlockOf(dtype);
  const size_t bytes = kRows * RowBytes(dtype, cols);
  file->matrix = RandomBytes(bytes, 1);
  file->experts = RandomBytes(kExperts * bytes, 2);
  file->bias = Numbers(kRows);
  GgufWriter writer;
  writer.AddTensor("blk.0.attn_q.weight", dtype, std::vector<int64_t>{kRows, cols}, file->matrix);
  writer.AddTensor("blk.0.ffn_up_exps.weight",
                   dtype,
                   std::vector<int64_t>{kExperts, kRows, cols},
                   file->experts);
  writer.AddTensor("blk.0.attn_q.bias",
                   DType::kF32,
                   std::vector<int64_t>{kRows},
                   std::as_bytes(std::span(file->bias)));
  file->bytes = writer.Finish();
  auto gguf = GgufFile::Parse("test.gguf", file->bytes);
  BATON_CHECK(gguf.ok(), "{}", Message(gguf.status()));
  Naming naming = NamingScheme::kGguf;
  naming.experts = kExperts;
  file->weights = std::make_unique<FileWeights>(*std::move(gguf), naming);
  return file;
}

std::unique_ptr<File> SafetensorsOf(DType dtype, const std::string& type) {
  auto file = std::make_unique<File>();
  file->matrix = RandomBytes(kRows * RowBytes(dtype, kBlocks), 1);
  file->bias = Numbers(kRows);
  const size_t end = file->matrix.size() + kRows * sizeof(float);
  const std::string header = fmt::format(
      R"({{"model.layers.0.self_attn.q_proj.weight":{{"dtype":"{}","shape":[{},{}],"data_offsets":[0,{}]}},)"
      R"("model.layers.0.self_attn.q_proj.bias":{{"dtype":"F32","shape":[{}],"data_offsets":[{},{}]}}}})",
      type,
      kRows,
      kBlocks,
      file->matrix.size(),
      kRows,
      file->matrix.size(),
      end);
  AppendBytes(file->bytes, uint64_t{header.size()});
  const auto text = std::as_bytes(std::span(header));
  const auto bias = std::as_bytes(std::span(file->bias));
  file->bytes.insert(file->bytes.end(), text.begin(), text.end());
  file->bytes.insert(file->bytes.end(), file->matrix.begin(), file->matrix.end());
  file->bytes.insert(file->bytes.end(), bias.begin(), bias.end());
  auto parsed = SafetensorsFile::Parse("x.safetensors", file->bytes);
  BATON_CHECK(parsed.ok(), "{}", Message(parsed.status()));
  SafetensorsDirectory opened;
  for (const FileTensor& tensor : (*parsed)->tensors()) opened.tensors.push_back(&tensor);
  opened.files.push_back(*std::move(parsed));
  file->weights =
      std::make_unique<FileWeights>("folder", std::move(opened), NamingScheme::kHuggingFace);
  return file;
}

// Random ranges that together are [0, size), with ends at multiples of `multiple`.
std::vector<IndexRange> RandomRanges(int64_t size, int64_t multiple, std::mt19937_64& random) {
  std::vector<IndexRange> ranges;
  for (int64_t at = 0; at < size; at = ranges.back().end) {
    const int64_t left = (size - at) / multiple;
    const auto count = static_cast<int64_t>(random() % static_cast<uint64_t>(left)) + 1;
    ranges.push_back({at, at + count * multiple});
  }
  return ranges;
}

// Cuts `whole` into random slices, and puts the slices together again.
void CheckSlices(const WeightSource& weights,
                 const WeightId& id,
                 DType dtype,
                 std::span<const std::byte> whole) {
  const int64_t cols = kBlocks * BlockOf(dtype);
  const size_t row_bytes = RowBytes(dtype, cols);
  const auto all = weights.GetMatrix(id, kRows, cols);
  ASSERT_TRUE(all.ok()) << Message(all.status());
  ASSERT_TRUE(std::ranges::equal(std::span(all->data, whole.size()), whole));
  ASSERT_EQ(all->row_stride(), cols);
  std::mt19937_64 random(17);
  for (int round = 0; round < 20; ++round) {
    Bytes together(whole.size());
    for (const IndexRange& rows : RandomRanges(kRows, 1, random)) {
      for (const IndexRange& columns : RandomRanges(cols, BlockOf(dtype), random)) {
        const auto part = weights.GetMatrix(id, kRows, cols, {.rows = rows, .cols = columns});
        ASSERT_TRUE(part.ok()) << Message(part.status());
        ASSERT_EQ(part->rows, rows.size());
        ASSERT_EQ(part->cols, columns.size());
        // The slice is a view of the whole matrix.
        ASSERT_EQ(part->data, all->Row(rows.begin) + RowBytes(dtype, columns.begin));
        ASSERT_EQ(part->WithAllColumns().data, all->Row(rows.begin));
        ASSERT_EQ(part->WithAllColumns().cols, cols);
        for (int64_t row = 0; row < part->rows; ++row) {
          std::memcpy(
              together.data() + (rows.begin + row) * row_bytes + RowBytes(dtype, columns.begin),
              part->Row(row),
              RowBytes(dtype, part->cols));
        }
      }
    }
    ASSERT_TRUE(std::ranges::equal(together, whole)) << "round " << round;
  }
}

class SlicesOfAFile : public testing::TestWithParam<DType> {};

TEST_P(SlicesOfAFile, MakeUpTheWhole) {
  const auto file = GgufOf(GetParam());
  CheckSlices(*file->weights, kQuery, GetParam(), file->matrix);
  const size_t bytes = file->experts.size() / kExperts;
  for (int32_t expert = 0; expert < kExperts; ++expert) {
    SCOPED_TRACE(expert);
    CheckSlices(*file->weights,
                {WeightKind::kExpertUp, 0, expert},
                GetParam(),
                std::span(file->experts).subspan(expert * bytes, bytes));
  }
}

INSTANTIATE_TEST_SUITE_P(Types,
                         SlicesOfAFile,
                         testing::ValuesIn(kWeightTypes),
                         [](const auto& test) { return std::string(Name(test.param)); });

TEST(WeightSlice, OfSafetensorsMakesUpTheWhole) {
  for (const auto& [dtype, type] : {std::pair{DType::kF32, "F32"},
                                    std::pair{DType::kF16, "F16"},
                                    std::pair{DType::kBF16, "BF16"}}) {
    SCOPED_TRACE(type);
    const auto file = SafetensorsOf(dtype, type);
    CheckSlices(*file->weights, kQuery, dtype, file->matrix);
    const auto part = file->weights->GetVector(kBias, kRows, IndexRange{7, 20});
    ASSERT_TRUE(part.ok()) << Message(part.status());
    EXPECT_TRUE(std::ranges::equal(*part, std::span(file->bias).subspan(7, 13)));
  }
}

TEST(WeightSlice, OfTheGeneratorMakesUpTheWhole) {
  const DummyWeights dummy(5);
  const WeightSource& weights = dummy;
  constexpr int64_t kCols = 40;
  const auto whole = weights.GetMatrix(kQuery, kRows, kCols);
  ASSERT_TRUE(whole.ok());
  std::vector<uint16_t> numbers(kRows * kCols);
  DrawMatrix(*whole, numbers);
  std::mt19937_64 random(3);
  for (int round = 0; round < 20; ++round) {
    std::vector<uint16_t> together(numbers.size());
    for (const IndexRange& rows : RandomRanges(kRows, 1, random)) {
      for (const IndexRange& columns : RandomRanges(kCols, 1, random)) {
        const auto part = weights.GetMatrix(kQuery, kRows, kCols, {.rows = rows, .cols = columns});
        ASSERT_TRUE(part.ok()) << Message(part.status());
        std::vector<uint16_t> drawn(static_cast<size_t>(part->rows * part->cols));
        DrawMatrix(*part, drawn);
        for (int64_t row = 0; row < part->rows; ++row) {
          std::copy_n(drawn.begin() + row * part->cols,
                      part->cols,
                      together.begin() + (rows.begin + row) * kCols + columns.begin);
        }
      }
    }
    ASSERT_EQ(together, numbers);
  }
  const auto bias = weights.GetVector(kBias, kRows);
  const auto part = weights.GetVector(kBias, kRows, IndexRange{3, 9});
  ASSERT_TRUE(bias.ok() && part.ok());
  EXPECT_TRUE(std::ranges::equal(*part, std::span(*bias).subspan(3, 6)));
}

std::string ErrorOf(const WeightSource& weights, DType dtype, const MatrixSlice& slice) {
  const auto part = weights.GetMatrix(kQuery, kRows, kBlocks * BlockOf(dtype), slice);
  if (part.ok()) return "no error";
  EXPECT_EQ(part.status().code(), StatusCode::kInvalidArgument);
  return std::string(Message(part.status()));
}

TEST(WeightSlice, ErrorsNameTheTensorTheRangeAndTheValidValues) {
  const auto file = GgufOf(DType::kQ4_K);
  const auto error = [&](const MatrixSlice& slice) {
    return ErrorOf(*file->weights, DType::kQ4_K, slice);
  };
  const std::string tensor = "test.gguf: tensor blk.0.attn_q.weight: ";
  const std::string no_range = " must be a range that is not empty within ";
  EXPECT_EQ(error({.rows = IndexRange{0, 30}}), tensor + "rows [0, 30)" + no_range + "[0, 29)");
  EXPECT_EQ(error({.rows = IndexRange{-1, 2}}), tensor + "rows [-1, 2)" + no_range + "[0, 29)");
  EXPECT_EQ(error({.rows = IndexRange{4, 4}}), tensor + "rows [4, 4)" + no_range + "[0, 29)");
  EXPECT_EQ(error({.cols = IndexRange{512, 256}}),
            tensor + "columns [512, 256)" + no_range + "[0, 1536)");
  EXPECT_EQ(error({.cols = IndexRange{0, 1792}}),
            tensor + "columns [0, 1792)" + no_range + "[0, 1536)");
  const std::string multiple = " must begin and end at multiples of 256, the block of q4_K";
  EXPECT_EQ(error({.cols = IndexRange{0, 128}}), tensor + "columns [0, 128)" + multiple);
  EXPECT_EQ(error({.cols = IndexRange{32, 512}}), tensor + "columns [32, 512)" + multiple);
  const auto bias = file->weights->GetVector(kBias, kRows, IndexRange{20, 31});
  EXPECT_EQ(bias.status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Message(bias.status()),
            "test.gguf: tensor blk.0.attn_q.bias: elements [20, 31)" + no_range + "[0, 29)");

  const DummyWeights dummy(1);
  EXPECT_EQ(ErrorOf(dummy, DType::kBF16, {.rows = IndexRange{29, 30}}),
            "model.layers.0.self_attn.q_proj.weight: rows [29, 30)" + no_range + "[0, 29)");
}

TEST(WeightSlice, MustNotCutABlock) {
  for (const DType dtype : kBlockTypes) {
    SCOPED_TRACE(Name(dtype));
    const auto file = GgufOf(dtype);
    const int64_t block = BlockOf(dtype);
    const std::string end =
        fmt::format("must begin and end at multiples of {}, the block of {}", block, Name(dtype));
    for (const IndexRange& range : {IndexRange{block / 2, 2 * block},
                                    IndexRange{block, 2 * block - 1},
                                    IndexRange{1, kBlocks * block}}) {
      EXPECT_TRUE(ErrorOf(*file->weights, dtype, {.cols = range}).ends_with(end));
    }
    EXPECT_EQ(ErrorOf(*file->weights, dtype, {.cols = IndexRange{block, 3 * block}}), "no error");
  }
}

// Each row of a matrix is two pages; only pages of the slice can be read.
TEST(WeightSlice, PackingReadsNothingElse) {
  const auto page = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  const auto half = static_cast<int64_t>(page / sizeof(float));
  const size_t size = kRows * 2 * page;
  void* memory = ::mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  const HostMatrix whole{DType::kF32, kRows, 2 * half, static_cast<const std::byte*>(memory)};
  const auto part =
      SliceOf(whole, {.rows = IndexRange{3, 20}, .cols = IndexRange{half, 2 * half}}, "");
  ASSERT_TRUE(part.ok());
  for (size_t row = 3; row < 20; ++row) {
    std::byte* right = static_cast<std::byte*>(memory) + (2 * row + 1) * page;
    ASSERT_EQ(::mprotect(right, page, PROT_READ), 0);
  }
  CpuDevice device;
  const auto ops = MakeCpuOps(device, {});
  ASSERT_TRUE(ops.ok());
  const auto matrix = (*ops)->LoadMatrix({&*part, 1});
  ASSERT_TRUE(matrix.ok()) << matrix.status();
  EXPECT_EQ((*matrix)->rows(), 17);
  EXPECT_EQ((*matrix)->cols(), half);
  ::munmap(memory, size);
}

}  // namespace
}  // namespace baton
