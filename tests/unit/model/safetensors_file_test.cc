#include "common/model/safetensors_file.h"

#include <cstdint>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/allocation_meter.h"
#include "tests/unit/model/gguf_writer.h"

namespace baton {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Bytes = std::vector<std::byte>;

Bytes File(const std::string& header, size_t data_bytes) {
  Bytes bytes;
  AppendBytes(bytes, uint64_t{header.size()});
  for (const char c : header) bytes.push_back(static_cast<std::byte>(c));
  bytes.resize(bytes.size() + data_bytes);
  return bytes;
}

// Pads the header with spaces, so that the data begins at a multiple of 8 bytes.
std::string Padded(std::string header) {
  while (header.size() % 8 != 0) header += ' ';
  return header;
}

std::string ErrorOf(const Bytes& bytes) {
  const auto file = SafetensorsFile::Parse("x.safetensors", bytes);
  return file.ok() ? "no error" : std::string(Message(file.status()));
}

TEST(SafetensorsFile, ReadsTensorsInTheOrderOfTheirBytes) {
  const Bytes bytes = File(Padded(R"({"__metadata__":{"format":"pt"},)"
                                  R"("b":{"dtype":"BF16","shape":[3,2],"data_offsets":[16,28]},)"
                                  R"("a":{"dtype":"F32","shape":[4],"data_offsets":[0,16]},)"
                                  R"("s":{"dtype":"F16","shape":[],"data_offsets":[28,30]}})"),
                           30);
  const auto file = SafetensorsFile::Parse("x.safetensors", bytes);
  ASSERT_TRUE(file.ok()) << Message(file.status());
  const auto& tensors = (*file)->tensors();
  ASSERT_EQ(tensors.size(), 3u);
  EXPECT_EQ(tensors[0].name, "a");
  EXPECT_EQ(tensors[0].bytes.size(), 16u);
  EXPECT_EQ(tensors[1].name, "b");
  EXPECT_EQ(tensors[1].dtype, DType::kBF16);
  EXPECT_THAT(tensors[1].shape, ElementsAre(3, 2));
  EXPECT_EQ(tensors[2].name, "s");
}

struct Corruption {
  std::string header;
  size_t data_bytes;
  std::string error;
};

TEST(SafetensorsFile, NamesWhatIsWrongWithACorruptFile) {
  const std::vector<Corruption> corruptions = {
      {"{", 0, "x.safetensors: the header is not valid JSON in UTF-8: line 1, column "},
      {"{\"a\": {}}\n]", 0, "needs dtype"},
      {"{\"__metadata__\": {},\n  b}", 0, "not valid JSON in UTF-8: line 2, column 3: "},
      {"[]", 0, "not a JSON object"},
      {R"({"a":)" + std::string(200'000, '[') + std::string(200'000, ']') + "}",
       0,
       "tensor a: needs dtype, shape and data_offsets"},
      {"\xff\xfe", 0, "not valid JSON in UTF-8: line 1, column 1"},
      {R"({"a":1})", 4, "tensor a: needs dtype, shape and data_offsets"},
      {R"({"a":{"dtype":1,"shape":[1],"data_offsets":[0,4]}})", 4, "needs dtype"},
      {R"({"a":{"dtype":["F32"],"shape":[1],"data_offsets":[0,4]}})", 4, "needs dtype"},
      {R"({"a":{"shape":[1],"data_offsets":[0,4]}})", 4, "needs dtype"},
      {R"({"a":[1]})", 4, "needs dtype"},
      {R"({"a":{"dtype":"F32","shape":1,"data_offsets":[0,4]}})", 4, "shape must be"},
      {R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4, "shape must be"},
      {R"({"a":{"dtype":"F32","shape":[1.5],"data_offsets":[0,4]}})", 4, "shape must be"},
      {R"({"a":{"dtype":"F32","shape":[[1]],"data_offsets":[0,4]}})", 4, "shape must be"},
      {R"({"a":{"dtype":"F32","shape":{},"data_offsets":[0,4]}})", 4, "shape must be"},
      {R"({"a":{"dtype":"F32","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,4]}})",
       4,
       "shape must be at most 8 numbers"},
      {R"({"a":{"dtype":"F32","shape":[0],"data_offsets":[0,4]}})", 4, "F32 [0] takes 0"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
       R"("a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
       8,
       "tensor a appears twice"},
      {R"({"a":{"dtype":"F32","shape":[4000000000,4000000000],"data_offsets":[0,4]}})",
       4,
       "too large"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4]}})", 4, "data_offsets must be"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 4, "reach beyond"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,8]}})", 4, "reach beyond"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,18446744073709551615]}})",
       4,
       "data_offsets must be"},
      {R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})",
       4,
       "hold 4 bytes, but F32 [2] takes 8"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 8, "it must begin at 0"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
       R"("b":{"dtype":"F32","shape":[1],"data_offsets":[2,6]}})",
       6,
       "it must begin at 4"},
      {R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 9, "last 5 bytes"},
  };
  for (const Corruption& corruption : corruptions) {
    EXPECT_THAT(ErrorOf(File(Padded(corruption.header), corruption.data_bytes)),
                HasSubstr(corruption.error))
        << corruption.header;
  }
}

// The reader of Hugging Face accepts these as well.
TEST(SafetensorsFile, TakesUnalignedAndEmptyTensorsAndOtherTypes) {
  const Bytes bytes =
      File(R"({"__metadata__":{"format":"pt","more":[]},)"
           R"("i":{"dtype":"I64","shape":[1],"data_offsets":[0,8],"note":{"deep":[[1]]}},)"
           R"("n":{"dtype":"F32","shape":[0,4],"data_offsets":[8,8]},)"
           R"("h":{"dtype":"F16","shape":[1],"data_offsets":[8,10]},)"
           R"("x":{"dtype":"F32","shape":[2],"data_offsets":[10,18]}})",
           18);
  const auto file = SafetensorsFile::Parse("x.safetensors", bytes);
  ASSERT_TRUE(file.ok()) << Message(file.status());
  const auto& tensors = (*file)->tensors();
  ASSERT_EQ(tensors.size(), 4u);
  EXPECT_EQ(tensors[0].name, "i");
  EXPECT_EQ(TypeName(tensors[0]), "I64");
  EXPECT_EQ(tensors[0].bytes.size(), 8u);
  EXPECT_EQ(tensors[1].name, "n");
  EXPECT_EQ(tensors[1].bytes.size(), 0u);
  EXPECT_EQ(tensors[3].name, "x");
  EXPECT_EQ(TypeName(tensors[3]), "f32");
  EXPECT_NE(reinterpret_cast<uintptr_t>(tensors[3].bytes.data()) % 4, 0u);
}

// A JSON tree of this header would take 13 times the size of the header. The lexer of the JSON
// library keeps all text since the last string or number in a vector that doubles its capacity.
TEST(SafetensorsFile, ReadsAHeaderWithoutATreeOfIt) {
  constexpr size_t kHeaderBytes = size_t{32} << 20;
  std::string header = R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"more":[)";
  header.reserve(kHeaderBytes);
  while (header.size() < kHeaderBytes - 16) header += "[],";
  header += "[]]}}";
  const Bytes bytes = File(header, 4);
  const AllocationMeter meter;
  EXPECT_EQ(ErrorOf(bytes), "no error");
  EXPECT_LT(meter.peak(), 2 * kHeaderBytes);
}

TEST(SafetensorsFile, RefusesHeadersThatAreCutOrTooLong) {
  EXPECT_THAT(ErrorOf({}), HasSubstr("truncated"));
  Bytes bytes = File("{}", 0);
  EXPECT_EQ(ErrorOf(bytes), "no error");
  bytes.pop_back();
  EXPECT_THAT(ErrorOf(bytes), HasSubstr("truncated: header"));
  Bytes huge;
  AppendBytes(huge, uint64_t{100'000'001});
  EXPECT_THAT(ErrorOf(huge), HasSubstr("at most 100000000"));
}

}  // namespace
}  // namespace baton
