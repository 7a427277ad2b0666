#include "common/model/safetensors_directory.h"

#include <cstring>
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temporary_folder.h"
#include "tests/unit/model/safetensors_writer.h"

namespace baton {
namespace {

using testing::HasSubstr;

HeldTensor Scalar(float value) {
  HeldTensor tensor{DType::kF32, {1}, std::vector<std::byte>(sizeof(value))};
  std::memcpy(tensor.bytes.data(), &value, sizeof(value));
  return tensor;
}

class SafetensorsDirectory : public testing::Test {
 protected:
  void SetUp() override { Write("one.safetensors", SafetensorsFileOf({{"a", Scalar(1)}})); }

  void Write(const std::string& name, std::string_view content) { folder_.Write(name, content); }
  std::string IndexError(std::string_view index) {
    Write("model.safetensors.index.json", index);
    const auto files = OpenSafetensorsDirectory(folder_.path());
    return files.ok() ? "no error" : std::string(Message(files.status()));
  }

  // "name value" of each tensor of the model, or the error.
  std::string Chosen(std::string_view index) {
    Write("model.safetensors.index.json", index);
    const auto opened = OpenSafetensorsDirectory(folder_.path());
    if (!opened.ok()) return std::string(Message(opened.status()));
    std::string text;
    for (const FileTensor* tensor : opened->tensors) {
      float value = 0;
      std::memcpy(&value, tensor->bytes.data(), sizeof(value));
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", tensor->name, value);
    }
    return text;
  }

  const TemporaryFolder folder_;
};

TEST_F(SafetensorsDirectory, OpensTheFilesOfAnIndex) {
  EXPECT_EQ(IndexError(R"({"weight_map":{"a":"one.safetensors"}})"), "no error");
}

TEST_F(SafetensorsDirectory, StaysInsideTheDirectory) {
  for (const char* name : {"../one.safetensors", "/etc/passwd", "sub/one.safetensors", "..", ""}) {
    EXPECT_THAT(IndexError(fmt::format(R"({{"weight_map":{{"a":"{}"}}}})", name)),
                HasSubstr("not a plain file name"))
        << name;
  }
  EXPECT_THAT(IndexError(R"({"weight_map":{"a":"one\u0000.safetensors"}})"),
              HasSubstr("not a plain file name"));
}

TEST_F(SafetensorsDirectory, NamesWhatIsWrongWithAnIndex) {
  EXPECT_THAT(IndexError("no json"),
              HasSubstr("index.json is not valid JSON in UTF-8: line 1, column 2"));
  EXPECT_THAT(IndexError(R"({"weight_map":[]})"), HasSubstr("an object weight_map"));
  EXPECT_THAT(IndexError(R"({"weight_map":{}})"), HasSubstr("weight_map is empty"));
  EXPECT_THAT(IndexError(R"({"weight_map":{"a":3}})"), HasSubstr("a must name a file"));
  EXPECT_THAT(IndexError(R"({"weight_map":{"b":"one.safetensors"}})"),
              HasSubstr("tensor b is not in one.safetensors"));
  EXPECT_THAT(IndexError(R"({"weight_map":{"a":"two.safetensors"}})"),
              HasSubstr("two.safetensors: No such file"));
}

TEST_F(SafetensorsDirectory, ReadsATensorOfTwoFilesFromTheOneThatTheIndexNames) {
  Write("two.safetensors", SafetensorsFileOf({{"a", Scalar(2)}, {"b", Scalar(3)}}));
  EXPECT_EQ(Chosen(R"({"weight_map":{"a":"one.safetensors","b":"two.safetensors"}})"), "a 1, b 3");
  EXPECT_EQ(Chosen(R"({"weight_map":{"a":"two.safetensors","b":"two.safetensors"}})"), "a 2, b 3");
  Write("one.safetensors", SafetensorsFileOf({{"a", Scalar(1)}, {"c", Scalar(4)}}));
  EXPECT_EQ(
      Chosen(
          R"({"weight_map":{"a":"two.safetensors","b":"two.safetensors","c":"one.safetensors"}})"),
      "c 4, a 2, b 3");
}

TEST_F(SafetensorsDirectory, ReadsATensorThatTheIndexDoesNotNameOnlyWhereOneFileHasIt) {
  Write("one.safetensors", SafetensorsFileOf({{"a", Scalar(1)}, {"x", Scalar(5)}}));
  Write("two.safetensors", SafetensorsFileOf({{"b", Scalar(3)}}));
  const char* index = R"({"weight_map":{"a":"one.safetensors","b":"two.safetensors"}})";
  EXPECT_EQ(Chosen(index), "a 1, x 5, b 3");
  Write("two.safetensors", SafetensorsFileOf({{"b", Scalar(3)}, {"x", Scalar(6)}}));
  EXPECT_THAT(Chosen(index),
              HasSubstr("index.json: tensor x is in one.safetensors and in two.safetensors, and "
                        "the index does not name it"));
}

TEST_F(SafetensorsDirectory, DoesNotGuessBetweenAnIndexAndASingleFile) {
  Write("model.safetensors", SafetensorsFileOf({{"a", Scalar(2)}}));
  EXPECT_THAT(Chosen(R"({"weight_map":{"a":"one.safetensors"}})"),
              HasSubstr("has model.safetensors and an index"));
  EXPECT_EQ(Chosen(R"({"weight_map":{"a":"model.safetensors"}})"), "a 2");
}

TEST_F(SafetensorsDirectory, NeedsAWeightFile) {
  const auto files = OpenSafetensorsDirectory(folder_.path());
  EXPECT_EQ(files.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(Message(files.status()), HasSubstr("model.safetensors"));
}

}  // namespace
}  // namespace baton
