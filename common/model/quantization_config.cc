#include "common/model/quantization_config.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

#include <fmt/ranges.h>

#include "common/model/config_file.h"

namespace baton {
namespace {

constexpr int32_t kMaxGroup = 1 << 20;

Status Refuse(const JsonFields& fields,
              std::string_view key,
              std::string_view value,
              std::string_view supported) {
  return MakeStatus(StatusCode::kUnimplemented,
                    "{}: {} is {}; supported is {}",
                    fields.file(),
                    key,
                    value,
                    supported);
}

// The value, or `fallback` without one, must be one of `allowed`.
Status CheckOneOf(JsonFields& fields,
                  std::string_view key,
                  std::string_view fallback,
                  std::initializer_list<std::string_view> allowed) {
  const std::string value = fields.TextOr(key, fallback);
  BATON_RETURN_IF_ERROR(fields.status());
  if (std::ranges::find(allowed, value) != allowed.end()) return OkStatus();
  return Refuse(fields, key, value, fmt::format("{}", fmt::join(allowed, ", ")));
}

// A number of inputs; −1 (GPTQ) means all of them.
int64_t ReadGroup(JsonFields& fields, std::string_view key, int32_t fallback) {
  const int32_t size = fields.IntOr(key, fallback, -1, kMaxGroup);
  if (size == 0 || (size > 0 && size % 8 != 0)) {
    fields.Fail(InvalidArgument(
        "{}: {} is {}; it must be -1 or a multiple of 8", fields.file(), key, size));
  }
  return std::max(size, 0);
}

StatusOr<WeightScheme> ReadGptqScheme(JsonFields& fields, const WeightScheme& base) {
  WeightScheme scheme = base;
  scheme.bits = fields.IntOr("bits", base.bits, 1, 32);
  if (fields.Has("group_size")) scheme.group_cols = ReadGroup(fields, "group_size", -1);
  scheme.symmetric = fields.BoolOr("sym", base.symmetric);
  BATON_RETURN_IF_ERROR(fields.status());
  if (scheme.bits != 2 && scheme.bits != 3 && scheme.bits != 4 && scheme.bits != 8) {
    return Refuse(fields, "bits", std::to_string(scheme.bits), "2, 3, 4, 8");
  }
  scheme.numbers = scheme.bits == 8 ? DType::kI8 : DType::kU4;
  return scheme;
}

// Adds the scheme. Two schemes that differ only in their zero points cannot be told apart by the
// shapes of tensors.
Status AddScheme(const JsonFields& fields,
                 const WeightScheme& scheme,
                 QuantizationConfig& quantization) {
  for (const WeightScheme& other : quantization.schemes) {
    if (other.numbers != scheme.numbers || other.bits != scheme.bits ||
        other.group_cols != scheme.group_cols || other.group_rows != scheme.group_rows) {
      continue;
    }
    if (other.symmetric == scheme.symmetric) return OkStatus();
    return MakeStatus(StatusCode::kUnimplemented,
                      "{}: weights of {} bits in groups of {} are symmetric in some layers and "
                      "have zero points in others; all must be alike",
                      fields.file(),
                      scheme.bits,
                      scheme.group_cols);
  }
  quantization.schemes.push_back(scheme);
  return OkStatus();
}

StatusOr<QuantizationConfig> ReadGptq(JsonFields& fields) {
  QuantizationConfig quantization{.method = QuantMethod::kGptq};
  BATON_RETURN_IF_ERROR(CheckOneOf(fields, "checkpoint_format", "gptq", {"gptq", "gptq_v2"}));
  quantization.zeros_less_by_one = !fields.IsText("checkpoint_format", "gptq_v2");
  quantization.act_order = fields.BoolOr("desc_act", false);
  BATON_RETURN_IF_ERROR(CheckOneOf(fields, "pack_dtype", "int32", {"int32"}));
  if (fields.BoolOr("is_marlin_format", false)) {
    return Refuse(fields, "is_marlin_format", "true", "false");
  }
  if (!fields.Has("bits")) return InvalidArgument("{}: bits is missing", fields.file());
  BATON_ASSIGN_OR_RETURN(const WeightScheme base, ReadGptqScheme(fields, {}));
  BATON_RETURN_IF_ERROR(AddScheme(fields, base, quantization));
  if (!fields.Has("dynamic")) return quantization;
  // By pattern of names: "-:…" are not quantised, others by what their object says.
  BATON_ASSIGN_OR_RETURN(const auto dynamic, fields.Object("dynamic"));
  for (const std::string& pattern : dynamic->Keys()) {
    if (pattern.starts_with("-:")) continue;
    BATON_ASSIGN_OR_RETURN(const auto rule, dynamic->Object(pattern));
    BATON_ASSIGN_OR_RETURN(const WeightScheme scheme, ReadGptqScheme(*rule, base));
    BATON_RETURN_IF_ERROR(AddScheme(*rule, scheme, quantization));
  }
  return quantization;
}

StatusOr<QuantizationConfig> ReadAwq(JsonFields& fields) {
  const std::string version = fields.TextOr("version", "gemm");
  if (version != "gemm" && version != "GEMM") return Refuse(fields, "version", version, "gemm");
  const int32_t bits = fields.IntOr("bits", 4, 1, 32);
  WeightScheme scheme;
  scheme.group_cols = ReadGroup(fields, "group_size", 128);
  // AWQ always stores zero points.
  scheme.symmetric = false;
  BATON_RETURN_IF_ERROR(fields.status());
  if (bits != 4) return Refuse(fields, "bits", std::to_string(bits), "4");
  return QuantizationConfig{.method = QuantMethod::kAwq, .schemes = {scheme}};
}

StatusOr<QuantizationConfig> ReadFp8(JsonFields& fields) {
  BATON_RETURN_IF_ERROR(CheckOneOf(fields, "fmt", "e4m3", {"e4m3", "float8_e4m3fn"}));
  BATON_RETURN_IF_ERROR(CheckOneOf(fields, "activation_scheme", "dynamic", {"dynamic", "static"}));
  WeightScheme scheme{.numbers = DType::kFp8, .bits = 8, .group_rows = 0};
  if (fields.Has("weight_block_size")) {
    const std::vector<int32_t> block = fields.IntsOr("weight_block_size", 1, kMaxGroup);
    BATON_RETURN_IF_ERROR(fields.status());
    if (block.size() != 2) {
      return InvalidArgument("{}: weight_block_size has {} numbers; it must have 2: rows, columns",
                             fields.file(),
                             block.size());
    }
    scheme.group_rows = block[0];
    scheme.group_cols = block[1];
  }
  return QuantizationConfig{.method = QuantMethod::kFp8, .schemes = {scheme}};
}

StatusOr<QuantizationConfig> ReadMxfp4(JsonFields& fields) {
  BATON_RETURN_IF_ERROR(fields.status());
  const WeightScheme scheme{.numbers = DType::kFp4, .group_cols = 32};
  return QuantizationConfig{.method = QuantMethod::kMxfp4, .schemes = {scheme}};
}

StatusOr<DType> TypeOfCompressed(JsonFields& weights, int32_t bits) {
  BATON_RETURN_IF_ERROR(CheckOneOf(weights, "type", "int", {"int", "float"}));
  const bool floats = weights.IsText("type", "float");
  if (bits == 8) return floats ? DType::kFp8 : DType::kI8;
  if (bits == 4) return floats ? DType::kFp4 : DType::kU4;
  return Refuse(weights, "num_bits", std::to_string(bits), "4, 8");
}

StatusOr<WeightScheme> ReadCompressedScheme(JsonFields& weights) {
  WeightScheme scheme;
  scheme.bits = weights.IntOr("num_bits", 8, 1, 32);
  BATON_ASSIGN_OR_RETURN(scheme.numbers, TypeOfCompressed(weights, scheme.bits));
  scheme.symmetric = weights.BoolOr("symmetric", true);
  const std::string_view usual = weights.Has("group_size") ? "group" : "tensor";
  BATON_RETURN_IF_ERROR(CheckOneOf(
      weights, "strategy", usual, {"tensor", "channel", "group", "block", "tensor_group"}));
  const std::string strategy = weights.TextOr("strategy", usual);
  if (strategy == "tensor") scheme.group_rows = 0;
  if (strategy.ends_with("group")) {
    if (!weights.Has("group_size")) {
      return InvalidArgument(
          "{}: group_size is missing; strategy {} needs it", weights.file(), strategy);
    }
    scheme.group_cols = ReadGroup(weights, "group_size", -1);
  }
  if (strategy == "block") {
    const std::vector<int32_t> block = weights.IntsOr("block_structure", 1, kMaxGroup);
    BATON_RETURN_IF_ERROR(weights.status());
    if (block.size() != 2) {
      return InvalidArgument("{}: block_structure has {} numbers; it must have 2: rows, columns",
                             weights.file(),
                             block.size());
    }
    scheme.group_rows = block[0];
    scheme.group_cols = block[1];
  }
  BATON_RETURN_IF_ERROR(weights.status());
  return scheme;
}

StatusOr<QuantizationConfig> ReadCompressedTensors(JsonFields& fields) {
  QuantizationConfig quantization{.method = QuantMethod::kCompressedTensors};
  BATON_RETURN_IF_ERROR(CheckOneOf(fields,
                                   "format",
                                   "pack-quantized",
                                   {"pack-quantized",
                                    "int-quantized",
                                    "float-quantized",
                                    "naive-quantized",
                                    "nvfp4-pack-quantized",
                                    "mixed-precision",
                                    "dense"}));
  for (const std::string_view key : {"sparsity_config", "transform_config"}) {
    if (!fields.Has(key)) continue;
    BATON_ASSIGN_OR_RETURN(const auto object, fields.Object(key));
    const bool dense = object->Keys().empty() || object->IsText("format", "dense");
    if (!dense) return Refuse(fields, key, "set", "none");
  }
  BATON_ASSIGN_OR_RETURN(const auto groups, fields.Object("config_groups"));
  for (const std::string& name : groups->Keys()) {
    BATON_ASSIGN_OR_RETURN(const auto group, groups->Object(name));
    if (group->Has("output_activations")) {
      return Refuse(*group, "output_activations", "set", "null");
    }
    if (!group->Has("weights")) continue;
    BATON_ASSIGN_OR_RETURN(const auto weights, group->Object("weights"));
    BATON_ASSIGN_OR_RETURN(const WeightScheme scheme, ReadCompressedScheme(*weights));
    BATON_RETURN_IF_ERROR(AddScheme(*weights, scheme, quantization));
    if (weights->IsText("actorder", "group")) quantization.act_order = true;
  }
  if (!quantization.schemes.empty()) return quantization;
  return InvalidArgument("{}: config_groups has no group with weights", fields.file());
}

using Reader = StatusOr<QuantizationConfig> (*)(JsonFields&);
constexpr std::pair<std::string_view, Reader> kMethods[] = {
    {"gptq", ReadGptq},
    {"awq", ReadAwq},
    {"compressed-tensors", ReadCompressedTensors},
    {"fp8", ReadFp8},
    {"mxfp4", ReadMxfp4},
};

StatusOr<QuantizationConfig> ReadMethod(JsonFields& fields, std::string_view fallback) {
  const std::string method = fields.TextOr("quant_method", fallback);
  BATON_RETURN_IF_ERROR(fields.status());
  std::vector<std::string_view> names;
  for (const auto& [name, reader] : kMethods) {
    if (method == name) return reader(fields);
    names.push_back(name);
  }
  return Refuse(fields,
                "quant_method",
                method.empty() ? "missing" : method,
                fmt::format("{}; or use the model in bf16, f16 or f32, or as a GGUF file",
                            fmt::join(names, ", ")));
}

}  // namespace

StatusOr<QuantizationConfig> ReadQuantization(const JsonFields& config) {
  if (!config.Has("quantization_config")) return QuantizationConfig();
  BATON_ASSIGN_OR_RETURN(const auto fields, config.Object("quantization_config"));
  return ReadMethod(*fields, "");
}

StatusOr<QuantizationConfig> ReadQuantizationOf(const std::string& directory) {
  BATON_ASSIGN_OR_RETURN(const auto config, ReadConfigFile(directory + "/config.json"));
  BATON_ASSIGN_OR_RETURN(QuantizationConfig quantization, ReadQuantization(*config));
  const std::string beside = directory + "/quantize_config.json";
  std::error_code ignored;
  if (quantization.method != QuantMethod::kNone || !std::filesystem::exists(beside, ignored)) {
    return quantization;
  }
  BATON_ASSIGN_OR_RETURN(const auto fields, ReadConfigFile(beside));
  return ReadMethod(*fields, "gptq");
}

}  // namespace baton
