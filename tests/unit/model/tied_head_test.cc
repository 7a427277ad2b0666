#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/check.h"
#include "common/model/describe_model.h"
#include "common/model/open_model.h"
#include "tests/support/temporary_folder.h"
#include "tests/unit/model/safetensors_writer.h"
#include "tests/unit/model/step_runner.h"

// Models whose configuration ties the output head to the embedding, and whose files have a head.
namespace baton {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTied = BATON_TEST_DATA "/tiny/llama_mqa_tied";
constexpr const char* kHead = "lm_head.weight";
constexpr const char* kEmbedding = "model.embed_tokens.weight";

// A copy of the tied model with the head `head`.
class TiedHead : public testing::Test {
 protected:
  void SetUp() override {
    fs::copy_file(std::string(kTied) + "/config.json", folder_.path() + "/config.json");
    tensors_ = TensorsIn(kTied);
    ASSERT_FALSE(tensors_.contains(kHead));
  }

  OpenedModel OpenWith(const HeldTensor& head) {
    tensors_[kHead] = head;
    folder_.Write("model.safetensors", SafetensorsFileOf(tensors_));
    auto model = OpenModel(folder_.path());
    BATON_CHECK(model.ok(), "{}", Message(model.status()));
    return *std::move(model);
  }

  static std::vector<Logits> LogitsOf(const OpenedModel& model) {
    const auto runner = StepRunner::Create(model.spec, *model.weights);
    BATON_CHECK(runner.ok(), "{}", Message(runner.status()));
    const std::vector<TokenId> tokens = {5, 17, 301, 4};
    return (*runner)->RunAll(0, tokens, tokens.size());
  }

  // The embedding with its rows in reverse order.
  HeldTensor Reversed() const {
    const HeldTensor& embedding = tensors_.at(kEmbedding);
    HeldTensor head = embedding;
    const size_t row = embedding.bytes.size() / embedding.shape[0];
    for (size_t at = 0; at < head.bytes.size(); at += row) {
      std::copy_n(embedding.bytes.end() - at - row, row, head.bytes.begin() + at);
    }
    return head;
  }

  const TemporaryFolder folder_;
  HeldTensors tensors_;
};

TEST_F(TiedHead, EqualToTheEmbeddingIsNotLoaded) {
  OpenedModel model = OpenWith(tensors_[kEmbedding]);
  EXPECT_FALSE(FindOwnHead(model));
  const auto tied = OpenModel(kTied);
  ASSERT_TRUE(tied.ok()) << tied.status();
  EXPECT_EQ(LogitsOf(model), LogitsOf(*tied));
  EXPECT_THAT(DescribeUnread(model.spec, *model.weights), testing::IsEmpty());
}

TEST_F(TiedHead, ThatDiffersIsUsedAndTheModelIsNotTied) {
  OpenedModel model = OpenWith(Reversed());
  const std::string shape = model.spec.ToString();
  EXPECT_TRUE(FindOwnHead(model));
  EXPECT_EQ(model.spec.ToString(), shape) << "a router without weights must find the same shape";
  OpenedModel untied = OpenWith(Reversed());
  untied.spec.tied_head = false;
  EXPECT_FALSE(FindOwnHead(untied));
  EXPECT_EQ(LogitsOf(model), LogitsOf(untied));
  EXPECT_THAT(DescribeUnread(model.spec, *model.weights), testing::IsEmpty());
}

TEST_F(TiedHead, DiffersInItsLastByteOrInItsType) {
  HeldTensor head = tensors_[kEmbedding];
  head.bytes.back() ^= std::byte{1};
  OpenedModel model = OpenWith(head);
  EXPECT_TRUE(FindOwnHead(model));
  head = tensors_[kEmbedding];
  ASSERT_EQ(head.dtype, DType::kF32);
  HeldTensor narrow{DType::kBF16, head.shape, {}};
  for (size_t at = 0; at < head.bytes.size(); at += 4) {
    narrow.bytes.push_back(head.bytes[at + 2]);
    narrow.bytes.push_back(head.bytes[at + 3]);
  }
  model = OpenWith(narrow);
  EXPECT_TRUE(FindOwnHead(model));
}

TEST_F(TiedHead, OfAModelWithoutAnEmbeddingIsRefusedByName) {
  const HeldTensor head = tensors_[kEmbedding];
  tensors_.erase(kEmbedding);
  OpenedModel model = OpenWith(head);
  EXPECT_FALSE(FindOwnHead(model));
  EXPECT_THAT(std::string(Message(StepRunner::Create(model.spec, *model.weights).status())),
              testing::HasSubstr("tensor model.embed_tokens.weight is missing"));
}

}  // namespace
}  // namespace baton
