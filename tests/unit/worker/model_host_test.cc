#include "common/worker/model_host.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace baton {
namespace {

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
  ModelRunner& runner = (*host)->runner();
  EXPECT_EQ(runner.device().name(), "cpu portable");
  EXPECT_EQ(runner.traits().max_rows, 48);
  EXPECT_EQ(runner.traits().max_logit_rows, 5);
  EXPECT_EQ(runner.traits().context_length, 64);
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

}  // namespace
}  // namespace baton
