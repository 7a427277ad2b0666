#include "common/engine/request_check.h"

#include <functional>
#include <limits>
#include <regex>
#include <string>

#include <gtest/gtest.h>

#include "common/base/mapped_file.h"
#include "common/cluster/sampling_fields.h"

namespace baton {
namespace {

constexpr RequestLimits kLimits = {.context_length = 100, .vocabulary = 50, .max_samples = 4};

Request Good() {
  Request request;
  request.tokens = {1, 2, 3};
  request.prompt_length = 3;
  request.stop_tokens = {49};
  return request;
}

TEST(RequestCheckTest, TakesAGoodRequest) {
  EXPECT_TRUE(CheckRequest(Good(), kLimits).ok());
}

TEST(RequestCheckTest, NamesWhatIsWrong) {
  static constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  static constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const std::vector<std::pair<std::function<void(Request&)>, std::string>> cases = {
      {[](Request& r) { r.tokens = {}; }, "the prompt is empty"},
      {[](Request& r) { r.tokens = std::vector<TokenId>(100, 1); }, "the prompt has 100 tokens"},
      {[](Request& r) {
         r.tokens = {1, -1, 3};
       },
       "token id -1"},
      {[](Request& r) {
         r.tokens = {1, 50, 3};
       },
       "token id 50; ids are 0 to 49"},
      {[](Request& r) { r.prompt_length = 4; }, "prompt_length is 4"},
      {[](Request& r) { r.prompt_length = 0; }, "prompt_length is 0"},
      {[](Request& r) { r.max_tokens = 0; }, "max_tokens is 0"},
      {[](Request& r) { r.min_tokens = 17; }, "min_tokens is 17"},
      {[](Request& r) { r.prompt_length = 1, r.max_tokens = 2; }, "already has 2 output tokens"},
      {[](Request& r) { r.prompt_length = 2, r.samples = 2; }, "a resumed request has 2 samples"},
      {[](Request& r) { r.samples = 5; }, "5 samples are requested"},
      {[](Request& r) { r.samples = 0; }, "0 samples are requested"},
      {[](Request& r) { r.first_sample = -1; }, "first_sample is -1"},
      {[](Request& r) { r.stop_tokens = {50}; }, "stop_tokens has token id 50"},
      {[](Request& r) { r.stop_tokens.assign(2000, 1); }, "2000 stop tokens"},
      {[](Request& r) { r.sampling.temperature = kNan; }, "temperature is nan"},
      {[](Request& r) { r.sampling.temperature = -1; }, "temperature is -1"},
      {[](Request& r) { r.sampling.temperature = kInfinity; }, "temperature is inf"},
      {[](Request& r) { r.sampling.top_p = 0; }, "top_p is 0"},
      {[](Request& r) { r.sampling.top_p = kNan; }, "top_p is nan"},
      {[](Request& r) { r.sampling.min_p = 1.5f; }, "min_p is 1.5"},
      {[](Request& r) { r.sampling.top_k = -1; }, "top_k is -1"},
      {[](Request& r) { r.sampling.repetition_penalty = 0; }, "repetition_penalty is 0"},
      {[](Request& r) { r.sampling.presence_penalty = kNan; }, "presence_penalty is nan"},
      {[](Request& r) { r.sampling.frequency_penalty = kInfinity; }, "frequency_penalty is inf"},
      {[](Request& r) { r.sampling.top_logprobs = 9999; }, "top_logprobs is 9999"},
      {[](Request& r) {
         r.sampling.logit_bias = {{50, 1.0f}};
       },
       "logit_bias has token id 50"},
      {[](Request& r) {
         r.sampling.logit_bias = {{1, kNan}};
       },
       "logit_bias is nan"},
  };
  for (const auto& [spoil, expected] : cases) {
    Request request = Good();
    spoil(request);
    const Status status = CheckRequest(request, kLimits);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << expected;
    EXPECT_NE(Message(status).find(expected), std::string_view::npos) << status;
  }
}

// The ranges documented in generation.proto are those that the code accepts, at both ends.
TEST(RequestCheckTest, RangesAreThoseOfTheReference) {
  struct Parameter {
    std::string_view name;
    FloatRange range;
    std::function<void(Request&, float)> set;
  };
  std::vector<Parameter> parameters = {{"logit_bias", kLogitBiasRange, [](Request& r, float v) {
                                          r.sampling.logit_bias = {{1, v}};
                                        }}};
  for (const SamplingField& field : kSamplingFields) {
    parameters.push_back(
        {field.name, field.range, [&field](Request& r, float v) { r.sampling.*field.value = v; }});
  }
  const auto reference = ReadFile(BATON_TEST_DATA "/../../proto/generation.proto");
  ASSERT_TRUE(reference.ok()) << reference.status();
  for (const auto& [name, range, set] : parameters) {
    const std::string text =
        fmt::format("{}{}, {}]", range.open ? '(' : '[', range.low, range.high);
    const std::regex line(fmt::format(" {} = \\d+; +// (\\S+, \\S+\\])", name));
    std::smatch found;
    ASSERT_TRUE(std::regex_search(*reference, found, line)) << name;
    EXPECT_EQ(found[1], text) << name;
    const float least = range.open ? std::numeric_limits<float>::min() : range.low;
    for (const float value : {least, range.high}) {
      Request request = Good();
      set(request, value);
      EXPECT_TRUE(CheckRequest(request, kLimits).ok()) << name << " " << value;
    }
    for (const float value : {range.open ? range.low : range.low - 1e-3f, range.high + 1e-3f}) {
      Request request = Good();
      set(request, value);
      EXPECT_EQ(Message(CheckRequest(request, kLimits)),
                fmt::format("{} is {}; it must be in {}", name, value, text));
    }
  }
}

}  // namespace
}  // namespace baton
