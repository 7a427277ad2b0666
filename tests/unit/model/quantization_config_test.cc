#include "common/model/quantization_config.h"

#include <string>
#include <string_view>
#include <utility>

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "common/base/check.h"
#include "tests/support/temporary_folder.h"

namespace baton {
namespace {

using testing::HasSubstr;
using Json = nlohmann::json;

StatusOr<QuantizationConfig> Read(const Json& quantization) {
  const Json config = {{"quantization_config", quantization}};
  const auto fields = JsonFields::Parse("config.json", config.dump());
  BATON_CHECK(fields.ok(), "{}", Message(fields.status()));
  return ReadQuantization(**fields);
}

QuantizationConfig Accepted(const Json& quantization) {
  const auto read = Read(quantization);
  EXPECT_TRUE(read.ok()) << quantization << ": " << Message(read.status());
  return read.ok() ? *read : QuantizationConfig{.schemes = {{}}};
}

// A configuration of compressed-tensors with one group of these weights.
Json Compressed(const Json& weights) {
  return {{"quant_method", "compressed-tensors"},
          {"config_groups", {{"group_0", {{"targets", {"Linear"}}, {"weights", weights}}}}}};
}

// The configuration with one member more, or another value of it.
Json With(Json config, std::string_view pointer, const Json& value) {
  config[Json::json_pointer(std::string(pointer))] = value;
  return config;
}

TEST(QuantizationConfig, IsNoneWithoutTheMember) {
  const auto fields = JsonFields::Parse("config.json", R"({"hidden_size": 8})");
  ASSERT_TRUE(fields.ok());
  EXPECT_EQ(ReadQuantization(**fields)->method, QuantMethod::kNone);
}

TEST(QuantizationConfig, ReadsTheFormatsOfGptq) {
  const Json first = {{"quant_method", "gptq"}, {"bits", 4}, {"group_size", 128}, {"sym", false}};
  const QuantizationConfig v1 = Accepted(first);
  EXPECT_EQ(v1.method, QuantMethod::kGptq);
  EXPECT_TRUE(v1.zeros_less_by_one);
  ASSERT_EQ(v1.schemes.size(), 1u);
  EXPECT_EQ(v1.schemes[0].numbers, DType::kU4);
  EXPECT_EQ(v1.schemes[0].group_cols, 128);
  EXPECT_FALSE(v1.schemes[0].symmetric);
  EXPECT_FALSE(Accepted(With(first, "/checkpoint_format", "gptq_v2")).zeros_less_by_one);

  const WeightScheme channels = Accepted({{"quant_method", "gptq"}, {"bits", 8}}).schemes[0];
  EXPECT_EQ(channels.numbers, DType::kI8);
  EXPECT_EQ(channels.group_cols, 0) << "all inputs, as with group_size -1";
  EXPECT_TRUE(channels.symmetric);

  const Json dynamic = {{"+:.*down_proj.*", {{"bits", 8}, {"group_size", 32}}}, {"-:.*gate.*", {}}};
  const QuantizationConfig mixed = Accepted(With(first, "/dynamic", dynamic));
  ASSERT_EQ(mixed.schemes.size(), 2u);
  EXPECT_EQ(mixed.schemes[1].bits, 8);
  EXPECT_EQ(mixed.schemes[1].group_cols, 32);
}

TEST(QuantizationConfig, ReadsBlocksOfFp8) {
  const Json config = {{"quant_method", "fp8"}, {"weight_block_size", {128, 64}}};
  const WeightScheme blocks = Accepted(config).schemes[0];
  EXPECT_EQ(blocks.numbers, DType::kFp8);
  EXPECT_EQ(blocks.group_rows, 128);
  EXPECT_EQ(blocks.group_cols, 64);
  const WeightScheme tensor = Accepted({{"quant_method", "fp8"}}).schemes[0];
  EXPECT_EQ(tensor.group_rows, 0);
  EXPECT_EQ(tensor.group_cols, 0);
}

TEST(QuantizationConfig, ReadsTheStrategiesOfCompressedTensors) {
  const auto scheme = [](const Json& weights) { return Accepted(Compressed(weights)).schemes[0]; };
  const WeightScheme groups =
      scheme({{"num_bits", 4}, {"strategy", "group"}, {"group_size", 32}, {"symmetric", false}});
  EXPECT_EQ(groups.numbers, DType::kU4);
  EXPECT_EQ(groups.group_rows, 1);
  EXPECT_EQ(groups.group_cols, 32);
  EXPECT_FALSE(groups.symmetric);
  const WeightScheme channels = scheme({{"num_bits", 8}, {"strategy", "channel"}});
  EXPECT_EQ(channels.numbers, DType::kI8);
  EXPECT_EQ(channels.group_rows, 1);
  EXPECT_EQ(channels.group_cols, 0);
  const WeightScheme tensor = scheme({{"num_bits", 8}, {"type", "float"}});
  EXPECT_EQ(tensor.numbers, DType::kFp8);
  EXPECT_EQ(tensor.group_rows, 0);
  const WeightScheme blocks = scheme(
      {{"num_bits", 8}, {"type", "float"}, {"strategy", "block"}, {"block_structure", {128, 64}}});
  EXPECT_EQ(blocks.group_rows, 128);
  EXPECT_EQ(blocks.group_cols, 64);
  const WeightScheme fours = scheme(
      {{"num_bits", 4}, {"type", "float"}, {"strategy", "tensor_group"}, {"group_size", 16}});
  EXPECT_EQ(fours.numbers, DType::kFp4);
}

// Groups may differ, and a group without weights says nothing.
TEST(QuantizationConfig, ReadsSeveralGroupsOfCompressedTensors) {
  Json config = Compressed({{"num_bits", 4}, {"strategy", "group"}, {"group_size", 32}});
  config["config_groups"]["group_1"] = {{"weights", {{"num_bits", 8}, {"strategy", "channel"}}}};
  config["config_groups"]["group_2"] = {{"weights", nullptr}};
  config["config_groups"]["group_3"] = config["config_groups"]["group_0"];
  EXPECT_EQ(Accepted(config).schemes.size(), 2u);
}

TEST(QuantizationConfig, ReadsTheFileOfOlderTools) {
  const TemporaryFolder folder;
  folder.Write("config.json", "{}");
  EXPECT_EQ(ReadQuantizationOf(folder.path())->method, QuantMethod::kNone);
  folder.Write("quantize_config.json", R"({"bits": 4, "group_size": 64, "desc_act": true})");
  const auto read = ReadQuantizationOf(folder.path());
  ASSERT_TRUE(read.ok()) << Message(read.status());
  EXPECT_EQ(read->method, QuantMethod::kGptq);
  EXPECT_EQ(read->schemes[0].group_cols, 64);
}

struct Refused {
  Json config;
  std::string_view error;
};

void ExpectRefused(std::initializer_list<Refused> cases) {
  for (const auto& [config, error] : cases) {
    const auto read = Read(config);
    ASSERT_FALSE(read.ok()) << config;
    EXPECT_THAT(Message(read.status()), HasSubstr(std::string(error))) << config;
    EXPECT_THAT(Message(read.status()), HasSubstr("config.json")) << config;
  }
}

TEST(QuantizationConfig, RefusesMethodsAndMembersThatAreWrong) {
  const Json gptq = {{"quant_method", "gptq"}, {"bits", 4}};
  const Json awq = {{"quant_method", "awq"}};
  const Json fp8 = {{"quant_method", "fp8"}};
  ExpectRefused({
      {4, "quantization_config is number; it must be an object"},
      {Json::object(), "quant_method is missing; supported is gptq, awq, compressed-tensors"},
      {{{"quant_method", 4}}, "quant_method is number; it must be a string"},
      {{{"quant_method", "bitsandbytes"}}, "quant_method is bitsandbytes; supported is gptq"},
      {{{"quant_method", "gptq"}}, "bits is missing"},
      {With(gptq, "/bits", 5), "bits is 5; supported is 2, 3, 4, 8"},
      {With(gptq, "/bits", "4"), "it must be an integer"},
      {With(gptq, "/group_size", 0), "group_size is 0; it must be -1 or a multiple of 8"},
      {With(gptq, "/group_size", 12), "group_size is 12; it must be -1 or a multiple of 8"},
      {With(gptq, "/group_size", -2), "group_size is -2; it must be between -1"},
      {With(gptq, "/sym", 1), "sym is number; it must be a boolean"},
      {With(gptq, "/checkpoint_format", "marlin"),
       "checkpoint_format is marlin; supported is gptq"},
      {With(gptq, "/pack_dtype", "int8"), "pack_dtype is int8; supported is int32"},
      {With(gptq, "/is_marlin_format", true), "is_marlin_format is true; supported is false"},
      {With(gptq, "/dynamic", 1), "dynamic is number; it must be an object"},
      {With(gptq, "/dynamic", {{".*k_proj", {{"bits", 6}}}}), "bits is 6"},
      {With(gptq, "/dynamic", {{".*k_proj", {{"sym", false}}}}), "all must be alike"},
      {With(awq, "/version", "gemv"), "version is gemv; supported is gemm"},
      {With(awq, "/bits", 8), "bits is 8; supported is 4"},
      {With(fp8, "/fmt", "e5m2"), "fmt is e5m2; supported is e4m3"},
      {With(fp8, "/activation_scheme", "none"), "activation_scheme is none; supported is dynamic"},
      {With(fp8, "/weight_block_size", 128), "weight_block_size has 1 numbers"},
      {With(fp8, "/weight_block_size", {128}), "weight_block_size has 1 numbers; it must have 2"},
      {With(fp8, "/weight_block_size", {128, 0}), "weight_block_size"},
  });
}

TEST(QuantizationConfig, RefusesGroupsOfCompressedTensorsThatAreWrong) {
  const Json none = {{"quant_method", "compressed-tensors"}};
  const Json good = Compressed({{"num_bits", 8}, {"strategy", "channel"}});
  ASSERT_TRUE(Read(good).ok());
  const auto with = [&](std::string_view member, const Json& value) {
    return With(good, "/config_groups/group_0/" + std::string(member), value);
  };
  ExpectRefused({
      {none, "config_groups is missing"},
      {With(none, "/config_groups", Json::object()), "config_groups has no group with weights"},
      {With(none, "/config_groups", {{"group_0", 1}}), "group_0 is number; it must be an object"},
      {With(good, "/format", "marlin-24"), "format is marlin-24; supported is pack-quantized"},
      {With(good, "/sparsity_config", {{"format", "sparse-24-bitmask"}}), "sparsity_config is set"},
      {With(good, "/transform_config", {{"config_groups", 1}}), "transform_config is set"},
      {with("output_activations", {{"num_bits", 8}}), "output_activations is set"},
      {with("weights/num_bits", 6), "num_bits is 6; supported is 4, 8"},
      {with("weights/type", "bfloat"), "type is bfloat; supported is int, float"},
      {with("weights/strategy", "token"), "strategy is token; supported is tensor, channel"},
      {with("weights/strategy", "group"), "group_size is missing; strategy group needs it"},
      {with("weights/strategy", "block"), "block_structure"},
      {with("weights/symmetric", "yes"), "symmetric is string; it must be a boolean"},
  });
}

}  // namespace
}  // namespace baton
