#include "common/model/gguf_split.h"

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/check.h"
#include "common/model/dummy_weights.h"
#include "common/model/open_model.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/model/model_gguf.h"
#include "tests/unit/model/step_runner.h"

namespace baton {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr int64_t kShape[] = {2, 32};

// What a test changes in one part of a split model.
struct PartKeys {
  uint32_t number = 0;
  uint32_t count = 3;
  uint32_t tensors = 3;
  std::string tensor;
};

class GgufSplit : public testing::Test {
 protected:
  std::string Name(int part) const { return fmt::format("m-{:05}-of-00003.gguf", part); }

  // Writes a part of three, whose tensor is "t1", "t2" or "t3".
  void Write(int part, const std::function<void(PartKeys&)>& change = {}) {
    PartKeys keys{.number = static_cast<uint32_t>(part - 1), .tensor = fmt::format("t{}", part)};
    if (change) change(keys);
    GgufWriter writer;
    writer.SetString("general.architecture", "llama");
    writer.SetUint32("split.no", keys.number);
    writer.SetUint32("split.count", keys.count);
    writer.SetUint32("split.tensors.count", keys.tensors);
    writer.AddTensor(keys.tensor, DType::kF32, kShape, std::vector<std::byte>(256));
    const auto bytes = writer.Finish();
    folder_.Write(Name(part), {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  }
  void WriteAll() {
    for (int part = 1; part <= 3; ++part) Write(part);
  }
  std::string ErrorOf(const std::string& name) const {
    const auto file = GgufFile::Open(folder_.path() + "/" + name);
    return file.ok() ? "no error" : std::string(Message(file.status()));
  }

  const TemporaryFolder folder_;
};

TEST_F(GgufSplit, HasTheTensorsOfAllParts) {
  WriteAll();
  const auto file = GgufFile::Open(folder_.path() + "/" + Name(1));
  ASSERT_TRUE(file.ok()) << file.status();
  std::vector<std::string> found;
  for (const FileTensor& tensor : (*file)->tensors()) {
    found.push_back(tensor.name + " of " + tensor.file.substr(folder_.path().size() + 1));
  }
  EXPECT_THAT(found,
              testing::ElementsAre("t1 of " + Name(1), "t2 of " + Name(2), "t3 of " + Name(3)));
}

TEST_F(GgufSplit, NamesTheFirstPartWhenALaterOneIsGiven) {
  WriteAll();
  EXPECT_THAT(ErrorOf(Name(2)),
              AllOf(HasSubstr("m-00002-of-00003.gguf is part 2 of 3 of a split model"),
                    HasSubstr("give the first part, "),
                    HasSubstr("/m-00001-of-00003.gguf")));
}

TEST_F(GgufSplit, NeedsEveryPartUnderItsName) {
  WriteAll();
  std::filesystem::remove(folder_.path() + "/" + Name(3));
  EXPECT_THAT(ErrorOf(Name(1)),
              AllOf(HasSubstr("part 3 of 3 of the split model"), HasSubstr("No such file")));
  std::filesystem::rename(folder_.path() + "/" + Name(1), folder_.path() + "/first.gguf");
  EXPECT_THAT(ErrorOf("first.gguf"), HasSubstr("its name must end with -00001-of-00003.gguf"));
}

TEST_F(GgufSplit, RefusesPartsThatDoNotFitTogether) {
  const std::vector<std::pair<std::function<void(PartKeys&)>, std::string>> changes = {
      {[](PartKeys& keys) { keys.number = 2; }, "is part 3 of 3"},
      {[](PartKeys& keys) { keys.count = 4; }, "is part 2 of 4"},
      {[](PartKeys& keys) { keys.count = 0; }, "is part 1 of 1"},
      {[](PartKeys& keys) { keys.tensors = 4; }, "(split.tensors.count 4)"},
      {[](PartKeys& keys) { keys.number = 3; }, "split.no is 3 and split.count is 3"},
      {[](PartKeys& keys) { keys.count = 1'000'000; }, "split.count is 1000000"},
      {[](PartKeys& keys) { keys.tensor = "t1"; }, "tensor t1 is in "}};
  for (const auto& [change, error] : changes) {
    WriteAll();
    Write(2, change);
    EXPECT_THAT(ErrorOf(Name(1)), AllOf(HasSubstr(error), HasSubstr(Name(2))));
  }
  for (int part = 1; part <= 3; ++part) Write(part, [](PartKeys& keys) { keys.tensors = 4; });
  EXPECT_THAT(ErrorOf(Name(1)),
              HasSubstr("split.tensors.count is 4, but the 3 parts have 3 tensors"));
}

// A model that is cut into two files computes what it computes as one file.
TEST_F(GgufSplit, ModelLoadsAsAWhole) {
  const ModelSpec spec = SmallSpec();
  const DummyWeights weights(3);
  const auto write = [&](const std::string& name, const GgufWriter& writer) {
    const auto bytes = writer.Finish();
    folder_.Write(name, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  };
  const GgufWriter whole = WriteModel(spec, FloatsOf(weights, spec), VectorsOf(weights));
  write("whole.gguf", whole);
  std::filesystem::create_directory(folder_.path() + "/split");
  const std::vector<GgufWriter> parts = whole.Split(2);
  write("split/tiny-00001-of-00002.gguf", parts[0]);
  write("split/tiny-00002-of-00002.gguf", parts[1]);
  const auto logits = [&](const std::string& name) {
    const auto model = OpenModel(folder_.path() + name);
    BATON_CHECK(model.ok(), "{}", Message(model.status()));
    EXPECT_EQ(model->name, name == "/whole.gguf" ? "whole" : "tiny");
    const auto runner = StepRunner::Create(model->spec, *model->weights);
    BATON_CHECK(runner.ok(), "{}", Message(runner.status()));
    const std::vector<TokenId> tokens = {5, 17, 31, 4};
    return (*runner)->RunAll(0, tokens, tokens.size());
  };
  EXPECT_EQ(logits("/split/tiny-00001-of-00002.gguf"), logits("/whole.gguf"));
  // A directory with nothing but the parts of one model stands for the model.
  EXPECT_EQ(logits("/split"), logits("/whole.gguf"));
}

}  // namespace
}  // namespace baton
