#include "common/worker/model_host.h"

#include <filesystem>
#include <memory>
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/engine/request_check.h"
#include "tests/support/temporary_folder.h"

namespace baton {
namespace {

namespace fs = std::filesystem;

using ::testing::AllOf;
using ::testing::HasSubstr;

ModelHostOptions Tiny() {
  ModelHostOptions options;
  options.path = BATON_TEST_DATA "/tiny/llama_gqa";
  return options;
}

TEST(ModelHostTest, OpensAModelOnTheCpu) {
  ModelHostOptions options = Tiny();
  options.max_step_tokens = 48;
  options.max_sequences = 5;
  options.backend.cpu_isa = "portable";
  options.context_length = 64;
  const auto host = ModelHost::Open(options);
  ASSERT_TRUE(host.ok()) << host.status();
  EXPECT_EQ((*host)->name(), "llama_gqa");
  EXPECT_EQ((*host)->device_name(), "cpu portable");
  EXPECT_EQ((*host)->traits().max_rows, 48);
  EXPECT_EQ((*host)->traits().max_logit_rows, 5 + kScoredRows);
  EXPECT_EQ((*host)->traits().context_length, 64);
}

TEST(ModelHostTest, SaysWhichDevicesThereCanBe) {
  for (const char* device : {"gpu", "cuda", "cuda:", "cuda:-1", "cuda:0x", ""}) {
    ModelHostOptions options = Tiny();
    options.backend.device = device;
    const auto host = ModelHost::Open(options);
    EXPECT_EQ(host.status().code(), StatusCode::kInvalidArgument) << device;
    EXPECT_THAT(std::string(Message(host.status())),
                AllOf(HasSubstr("engine.device"), HasSubstr("'cuda:N'")));
  }
}

TEST(ModelHostTest, AMissingBackendIsNamed) {
  ModelHostOptions options = Tiny();
  options.backend.device = "cuda:0";
  options.backend.cuda_library = "/no/such/libbaton_cuda.so";
  const auto host = ModelHost::Open(options);
  EXPECT_EQ(host.status().code(), StatusCode::kNotFound);
  EXPECT_THAT(std::string(Message(host.status())),
              AllOf(HasSubstr("engine.device"), HasSubstr("/no/such/libbaton_cuda.so")));
}

TEST(ModelHostTest, AContextLongerThanTheModelsIsRefused) {
  ModelHostOptions options = Tiny();
  options.context_length = 1 << 20;
  EXPECT_EQ(ModelHost::Open(options).status().code(), StatusCode::kInvalidArgument);
}

// The tiny model of 512 rows with a tokenizer of `ids` tokens.
class TinyWithTokenizer {
 public:
  explicit TinyWithTokenizer(int ids) {
    fs::copy(BATON_TEST_DATA "/tiny/llama_gqa", folder_.path());
    nlohmann::json vocabulary = nlohmann::json::object();
    for (int id = 0; id < ids; ++id) vocabulary[fmt::format("t{}", id)] = id;
    nlohmann::json tokenizer = {
        {"version", "1.0"},
        {"added_tokens", nlohmann::json::array()},
        {"normalizer", nullptr},
        {"pre_tokenizer",
         {{"type", "ByteLevel"},
          {"add_prefix_space", false},
          {"trim_offsets", true},
          {"use_regex", true}}},
        {"post_processor", nullptr},
        {"decoder", {{"type", "ByteLevel"}}},
        {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", nlohmann::json::array()}}}};
    folder_.Write("tokenizer.json", tokenizer.dump());
  }

  StatusOr<std::unique_ptr<ModelHost>> Open() const {
    ModelHostOptions options = Tiny();
    options.path = folder_.path();
    return ModelHost::Open(options);
  }

 private:
  const TemporaryFolder folder_;
};

TEST(ModelHostTest, ATokenizerWithMoreIdsThanTheEmbeddingHasRowsIsRefused) {
  const Status status = TinyWithTokenizer(513).Open().status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(Message(status)),
              HasSubstr("its tokenizer has 513 token ids, but its embedding has only 512 rows"));
  EXPECT_TRUE(TinyWithTokenizer(512).Open().ok());
}

TEST(ModelHostTest, OnlyTheTokenizersIdsAreTokens) {
  const auto host = TinyWithTokenizer(500).Open();
  ASSERT_TRUE(host.ok()) << host.status();
  EXPECT_EQ((*host)->traits().vocabulary, 500);
  const auto executor = (*host)->MakeExecutor({.kv = {.blocks = 1}});
  ASSERT_TRUE(executor.ok()) << executor.status();
  EXPECT_EQ((*executor)->traits().vocabulary, 500);
  EXPECT_NE((*host)->tokenizer(), Hash128());
}

}  // namespace
}  // namespace baton
