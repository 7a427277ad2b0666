#include "common/model/gguf_file.h"

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/model/gguf_writer.h"

namespace baton {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Bytes = std::vector<std::byte>;

constexpr int64_t kShape[] = {2, 32};
constexpr uint64_t kHuge = std::numeric_limits<uint64_t>::max();

GgufWriter Small() {
  GgufWriter writer;
  writer.SetString("general.architecture", "llama");
  writer.SetUint32("llama.block_count", 3);
  writer.AddTensor("a.weight", DType::kF32, kShape, Bytes(256));
  writer.AddTensor("b.weight", DType::kQ8_0, kShape, Bytes(68));
  return writer;
}

std::string ErrorOf(const Bytes& bytes) {
  const auto file = GgufFile::Parse("x.gguf", bytes);
  return file.ok() ? "no error" : std::string(Message(file.status()));
}

TEST(GgufFile, ReadsEveryKindOfValue) {
  GgufWriter writer;
  writer.SetInt8("i8", -5);
  writer.SetUint32("u32", 4000000000u);
  writer.SetInt64("i64", -1);
  writer.SetUint64("u64", 7);
  writer.SetFloat("f32", 0.5f);
  writer.SetDouble("f64", -2.25);
  writer.SetBool("flag", true);
  writer.SetString("text", "grüße");
  writer.SetStrings("texts", std::vector<std::string>{"a", "", "ccc"});
  writer.SetInt32s("numbers", std::vector<int32_t>{1, -2, 3});
  writer.SetFloats("reals", std::vector<float>{0.25f, -1});
  for (const uint32_t version : {2u, 3u}) {
    const Bytes bytes = writer.Finish(version);
    const auto file = GgufFile::Parse("x.gguf", bytes);
    ASSERT_TRUE(file.ok()) << Message(file.status());
    const GgufFile& gguf = **file;
    EXPECT_EQ(*gguf.Int("i8"), -5);
    EXPECT_EQ(*gguf.Int("u32"), 4000000000);
    EXPECT_EQ(*gguf.Int("i64"), -1);
    EXPECT_EQ(*gguf.Int("u64"), 7);
    EXPECT_EQ(*gguf.Float("f32"), 0.5);
    EXPECT_EQ(*gguf.Float("f64"), -2.25);
    EXPECT_EQ(*gguf.Float("u64"), 7);
    EXPECT_TRUE(*gguf.Bool("flag"));
    EXPECT_EQ(*gguf.String("text"), "grüße");
    EXPECT_THAT(*gguf.Strings("texts"), ElementsAre("a", "", "ccc"));
    EXPECT_THAT(*gguf.Ints("numbers"), ElementsAre(1, -2, 3));
    EXPECT_THAT(*gguf.Floats("reals"), ElementsAre(0.25, -1));
    EXPECT_FALSE(gguf.Has("other"));
  }
}

TEST(GgufFile, NamesKeyAndTypeOfWhatIsNotThere) {
  const Bytes bytes = Small().Finish();
  const auto file = GgufFile::Parse("x.gguf", bytes);
  ASSERT_TRUE(file.ok()) << Message(file.status());
  EXPECT_EQ((*file)->Int("llama.heads").status().code(), StatusCode::kNotFound);
  EXPECT_THAT(Message((*file)->Int("llama.heads").status()),
              HasSubstr("x.gguf: metadata key llama.heads is missing"));
  EXPECT_THAT(Message((*file)->Int("general.architecture").status()),
              HasSubstr("general.architecture is a string; it must be an integer"));
  EXPECT_THAT(Message((*file)->Strings("llama.block_count").status()),
              HasSubstr("is an integer; it must be an array of strings"));
}

TEST(GgufFile, FindsTensorsInTheirPlaces) {
  Bytes bytes = Small().Finish();
  bytes[bytes.size() - 68] = std::byte{42};
  const auto file = GgufFile::Parse("x.gguf", bytes);
  ASSERT_TRUE(file.ok()) << Message(file.status());
  const auto& tensors = (*file)->tensors();
  ASSERT_EQ(tensors.size(), 2u);
  EXPECT_EQ(tensors[0].name, "a.weight");
  EXPECT_EQ(tensors[0].dtype, DType::kF32);
  EXPECT_THAT(tensors[0].shape, ElementsAre(2, 32));
  EXPECT_EQ(tensors[0].bytes.size(), 256u);
  EXPECT_EQ(tensors[1].bytes.size(), 68u);
  EXPECT_EQ(tensors[1].bytes.front(), std::byte{42});
}

TEST(GgufFile, RefusesEveryTruncation) {
  const Bytes whole = Small().Finish();
  for (size_t length = 0; length < whole.size(); ++length) {
    const Bytes part(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(length));
    const std::string error = ErrorOf(part);
    ASSERT_THAT(
        error,
        testing::AnyOf(HasSubstr("truncated"), HasSubstr("reach beyond"), HasSubstr("declares")))
        << length;
  }
}

struct Corruption {
  std::string name;
  std::string error;
  std::function<Bytes()> make;
};

template <class T>
Bytes Patched(size_t offset, T value) {
  Bytes bytes = Small().Finish();
  std::memcpy(bytes.data() + offset, &value, sizeof(T));
  return bytes;
}

// The byte offset of `text` in the small file.
size_t Find(std::string_view text) {
  const Bytes bytes = Small().Finish();
  const std::string_view all(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return all.find(text);
}

Bytes WithRaw(uint32_t type, const Bytes& payload) {
  GgufWriter writer = Small();
  writer.SetRaw("key", type, payload);
  return writer.Finish();
}

Bytes ArrayOf(uint32_t type, uint64_t count) {
  Bytes payload;
  AppendBytes(payload, type);
  AppendBytes(payload, count);
  return WithRaw(9, payload);
}

Bytes WithTensor(DType dtype, const std::vector<int64_t>& shape, std::string_view name = "c") {
  GgufWriter writer = Small();
  writer.AddTensor(name, dtype, shape, Bytes(64));
  return writer.Finish();
}

std::vector<Corruption> Corruptions() {
  // After the name: number of dimensions (4 bytes), dimensions (2 × 8), type (4), offset (8).
  const size_t tensor = Find("a.weight");
  return {
      {"magic", "is not a GGUF file", [] { return Patched(0, uint32_t{0x12345678}); }},
      {"version 1", "GGUF version 1", [] { return Patched(4, uint32_t{1}); }},
      {"big endian", "GGUF version 50331648", [] { return Patched(4, uint32_t{0x03000000}); }},
      {"tensor count", "declares 18446744073709551615 tensors", [] { return Patched(8, kHuge); }},
      {"metadata count",
       "and 18446744073709551615 metadata values",
       [] { return Patched(16, kHuge); }},
      {"key length", "truncated", [] { return Patched(24, kHuge); }},
      {"unknown value type", "key has the unknown value type 13", [] { return WithRaw(13, {}); }},
      {"huge string array", "key declares", [] { return ArrayOf(8, kHuge); }},
      {"huge number array", "key declares", [] { return ArrayOf(4, kHuge / 4 + 2); }},
      {"nested array", "key is an array of type 9", [] { return ArrayOf(9, 1); }},
      {"number over 2^63",
       "over 2^63",
       [] {
         Bytes payload;
         AppendBytes(payload, kHuge);
         return WithRaw(10, payload);
       }},
      {"key twice",
       "metadata key llama.block_count appears twice",
       [] {
         GgufWriter writer = Small();
         writer.SetUint32("llama.block_count", 4);
         return writer.Finish();
       }},
      {"no dimensions",
       "a.weight has 0 dimensions",
       [=] { return Patched(tensor + 8, uint32_t{0}); }},
      {"too many dimensions",
       "a.weight has 9 dimensions",
       [=] { return Patched(tensor + 8, uint32_t{9}); }},
      {"zero dimension", "shape [2, 0]", [=] { return Patched(tensor + 12, int64_t{0}); }},
      {"negative dimension", "shape [2, -1]", [=] { return Patched(tensor + 12, int64_t{-1}); }},
      {"product over 2^62",
       "too large",
       [] {
         return WithTensor(DType::kF32, {int64_t{1} << 40, int64_t{1} << 40});
       }},
      {"unknown type beyond the file",
       "reach beyond",
       [=] {
         Bytes bytes = Patched(tensor + 28, uint32_t{99});
         const uint64_t far = uint64_t{1} << 40;
         std::memcpy(bytes.data() + tensor + 32, &far, sizeof(far));
         return bytes;
       }},
      {"part of a block",
       "rows of 33 numbers are not whole q8_0 blocks of 32",
       [] {
         return WithTensor(DType::kQ8_0, {2, 33});
       }},
      {"offset beyond the file",
       "reach beyond",
       [=] { return Patched(tensor + 32, uint64_t{1} << 40); }},
      {"offset that overflows", "reach beyond", [=] { return Patched(tensor + 32, kHuge - 31); }},
      {"offset not aligned",
       "offset 4 is not a multiple of the alignment 32",
       [=] { return Patched(tensor + 32, uint64_t{4}); }},
      {"tensor twice",
       "tensor a.weight appears twice",
       [] { return WithTensor(DType::kF32, {4}, "a.weight"); }},
      {"alignment",
       "general.alignment is 3",
       [] {
         GgufWriter writer = Small();
         writer.SetUint32("general.alignment", 3);
         return writer.Finish();
       }},
  };
}

TEST(GgufFile, NamesWhatIsWrongWithACorruptFile) {
  for (const Corruption& corruption : Corruptions()) {
    EXPECT_THAT(ErrorOf(corruption.make()), HasSubstr(corruption.error)) << corruption.name;
  }
}

TEST(GgufFile, NamesBlocksThatAreNotWholeOrMissing) {
  EXPECT_THAT(ErrorOf(WithTensor(DType::kMxfp4, {2, 48})),
              HasSubstr("rows of 48 numbers are not whole mxfp4 blocks of 32"));
  EXPECT_THAT(ErrorOf(WithTensor(DType::kQ3_K, {8, 32})),
              HasSubstr("rows of 32 numbers are not whole q3_K blocks of 256"));
  EXPECT_THAT(ErrorOf(WithTensor(DType::kMxfp4, {4, 64})),
              HasSubstr("136 bytes at offset 352 reach beyond the 416 bytes of tensor data"));
}

// Such a tensor is not an error, because it may never be read.
TEST(GgufFile, ListsTensorsOfTypesThatItCannotRead) {
  const Bytes bytes = Patched(Find("a.weight") + 28, uint32_t{99});
  const auto file = GgufFile::Parse("x.gguf", bytes);
  ASSERT_TRUE(file.ok()) << Message(file.status());
  ASSERT_EQ((*file)->tensors().size(), 2u);
  EXPECT_EQ(TypeName((*file)->tensors()[0]), "ggml type 99");
  EXPECT_EQ(TypeName((*file)->tensors()[1]), "q8_0");
}

// A file must not cause memory use out of proportion to its size.
TEST(GgufFile, BoundsTensorsAndValues) {
  Bytes bytes = Small().Finish();
  bytes.resize(size_t{64} << 20);
  const uint64_t many = kMaxTensors + 1;
  std::memcpy(bytes.data() + 8, &many, sizeof(many));
  EXPECT_THAT(ErrorOf(bytes), HasSubstr("has 262145 tensors and"));
}

TEST(GgufFile, ReportsAMissingFile) {
  EXPECT_EQ(GgufFile::Open("/nonexistent/x.gguf").status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace baton
