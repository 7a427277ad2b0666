#include "common/model/quantize_checkpoint.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include "common/base/json.h"
#include "common/base/mapped_file.h"
#include "common/model/config_file.h"
#include "common/model/quantization_config.h"
#include "common/model/quantize_matrix.h"
#include "common/model/safetensors_directory.h"
#include "common/model/safetensors_writer.h"
#include "kernels/dequantize.h"

namespace baton {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kWeight = ".weight";
constexpr std::string_view kIndex = "model.safetensors.index.json";
constexpr int64_t kBlock = 128;

// The last part of a module's name, for example q_proj of model.layers.0.self_attn.q_proj.weight.
std::string_view ModuleOf(std::string_view tensor) {
  if (!tensor.ends_with(kWeight)) return {};
  tensor.remove_suffix(kWeight.size());
  return tensor.substr(tensor.rfind('.') + 1);
}

bool IsMatrix(const FileTensor& tensor) {
  return tensor.shape.size() == 2 && tensor.other_type.empty() &&
         ShapeOf(tensor.dtype).elements == 1 && !ModuleOf(tensor.name).empty();
}

// Whether the tensor has the weights of a linear layer whose quantisation is usual. Small
// projections of recurrent layers are not among them.
bool IsLinear(const FileTensor& tensor) {
  constexpr std::array<std::string_view, 9> kNames = {
      "w1", "w2", "w3", "fc1", "fc2", "dense", "dense_h_to_4h", "dense_4h_to_h", "query_key_value"};
  constexpr std::array<std::string_view, 7> kSmall = {
      "x_proj", "dt_proj", "b_proj", "f_a_proj", "f_b_proj", "g_a_proj", "g_b_proj"};
  if (!IsMatrix(tensor)) return false;
  const std::string_view module = ModuleOf(tensor.name);
  if (std::ranges::find(kSmall, module) != kSmall.end()) return false;
  return module.ends_with("_proj") || module.ends_with("_proj_with_mqa") ||
         module.starts_with("in_proj_qkv") || module == "in_proj_z" ||
         std::ranges::find(kNames, module) != kNames.end();
}

// Whether it has all experts of a layer, which compressed-tensors has no layout for.
bool IsStackOfExperts(const FileTensor& tensor) {
  return tensor.shape.size() == 3 && tensor.name.find("experts") != std::string::npos;
}

// How a checkpoint is quantised.
struct Plan {
  QuantizeFormat format = QuantizeFormat::kFourBits;
  int64_t group = kBlock;                 // inputs with the same scale, of integers
  std::set<std::string> quantised = {};   // tensors
  std::vector<std::string> ignored = {};  // modules of linear layers that stay as they are
};

// The largest usual group that divides the inputs of all matrices but for those of odd sizes.
int64_t GroupFor(const std::vector<const FileTensor*>& tensors) {
  int64_t group = kBlock;
  for (const FileTensor* const tensor : tensors) {
    if (!IsLinear(*tensor) || tensor->shape[1] % 32 != 0) continue;
    while (tensor->shape[1] % group != 0) group /= 2;
  }
  return group;
}

Plan MakePlan(const std::vector<const FileTensor*>& tensors, QuantizeFormat format) {
  Plan plan{.format = format, .group = GroupFor(tensors)};
  for (const FileTensor* const tensor : tensors) {
    const bool divides =
        format == QuantizeFormat::kFp8 || (IsMatrix(*tensor) && tensor->shape[1] % plan.group == 0);
    if (IsLinear(*tensor) && divides) {
      plan.quantised.insert(tensor->name);
    } else if (IsMatrix(*tensor) &&
               ModuleOf(tensor->name).find("embed") == std::string_view::npos) {
      plan.ignored.push_back(tensor->name.substr(0, tensor->name.size() - kWeight.size()));
    }
  }
  return plan;
}

nlohmann::ordered_json ConfigOf(const Plan& plan) {
  const bool integers = plan.format == QuantizeFormat::kFourBits;
  nlohmann::ordered_json weights = {{"num_bits", integers ? 4 : 8},
                                    {"type", integers ? "int" : "float"},
                                    {"symmetric", true},
                                    {"strategy", integers ? "group" : "block"}};
  nlohmann::ordered_json activations = nullptr;
  if (integers) {
    weights["group_size"] = plan.group;
  } else {
    weights["block_structure"] = {kBlock, kBlock};
    activations = {{"num_bits", 8},
                   {"type", "float"},
                   {"symmetric", true},
                   {"strategy", "group"},
                   {"group_size", kBlock},
                   {"dynamic", true}};
  }
  return {
      {"quant_method", "compressed-tensors"},
      {"format", integers ? "pack-quantized" : "float-quantized"},
      {"quantization_status", "compressed"},
      {"ignore", plan.ignored},
      {"config_groups",
       {{"group_0",
         {{"targets", {"Linear"}}, {"weights", weights}, {"input_activations", activations}}}}}};
}

std::string_view TypeOf(const FileTensor& tensor) {
  return tensor.other_type.empty() ? SafetensorsTypeName(tensor.dtype) : tensor.other_type;
}

// The tensors that take the place of one.
std::vector<TensorPlan> TensorsOf(const Plan& plan, const FileTensor& tensor) {
  if (!plan.quantised.contains(tensor.name)) {
    return {{tensor.name, std::string(TypeOf(tensor)), tensor.shape, tensor.bytes.size()}};
  }
  const int64_t rows = tensor.shape[0];
  const int64_t cols = tensor.shape[1];
  const std::string module = tensor.name.substr(0, tensor.name.size() - kWeight.size());
  const auto sized =
      [](std::string name, std::string type, std::vector<int64_t> shape, size_t bytes) {
        for (const int64_t size : shape) bytes *= static_cast<size_t>(size);
        return TensorPlan{std::move(name), std::move(type), std::move(shape), bytes};
      };
  if (plan.format == QuantizeFormat::kFp8) {
    const auto blocks = [](int64_t size) { return (size + kBlock - 1) / kBlock; };
    return {sized(tensor.name, "F8_E4M3", {rows, cols}, 1),
            sized(module + ".weight_scale", "F32", {blocks(rows), blocks(cols)}, 4)};
  }
  return {sized(module + ".weight_packed", "I32", {rows, cols / 8}, 4),
          sized(module + ".weight_scale", "BF16", {rows, cols / plan.group}, 2),
          sized(module + ".weight_shape", "I64", {2}, 8)};
}

// Quantises a tensor and appends what TensorsOf lists.
Status AppendQuantized(const Plan& plan, const FileTensor& tensor, SafetensorsWriter& writer) {
  std::vector<float> weights(static_cast<size_t>(tensor.shape[0] * tensor.shape[1]));
  Dequantize(tensor.dtype, tensor.bytes, weights);
  const WeightsView view{weights, tensor.shape[0], tensor.shape[1]};
  const bool integers = plan.format == QuantizeFormat::kFourBits;
  auto quantised = integers ? QuantizeToFourBits(view, plan.group) : QuantizeToFp8(view, kBlock);
  if (!quantised.ok()) {
    return Annotate(quantised.status(), NameForErrors(tensor));
  }
  BATON_RETURN_IF_ERROR(writer.Append(quantised->numbers));
  if (!integers) return writer.Append(std::as_bytes(std::span(quantised->scales)));
  std::vector<uint16_t> scales;
  for (const float scale : quantised->scales) scales.push_back(FloatToBrain(scale));
  BATON_RETURN_IF_ERROR(writer.Append(std::as_bytes(std::span(scales))));
  return writer.Append(std::as_bytes(std::span(tensor.shape)));
}

Status WriteText(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  file.flush();
  if (file.good()) return OkStatus();
  return MakeStatus(StatusCode::kUnavailable, "{}: cannot be written", path);
}

// Writes one file with the tensors of another one.
Status WriteFile(const Plan& plan,
                 const std::vector<const FileTensor*>& tensors,
                 const std::string& path,
                 const std::vector<TensorPlan>& planned,
                 const SafetensorsDirectory& opened) {
  BATON_ASSIGN_OR_RETURN(SafetensorsWriter writer, SafetensorsWriter::Create(path, planned));
  for (const FileTensor* const tensor : tensors) {
    const bool quantised = plan.quantised.contains(tensor->name);
    BATON_RETURN_IF_ERROR(quantised ? AppendQuantized(plan, *tensor, writer)
                                    : writer.Append(tensor->bytes));
    for (const auto& mapped : opened.files) mapped->DropPages(tensor->bytes);
  }
  return writer.Finish();
}

// Writes the weight files, with the names of those that are read, and their index if there are
// several.
Status WriteWeights(const Plan& plan,
                    const SafetensorsDirectory& opened,
                    const std::string& to,
                    QuantizeReport& report) {
  std::map<std::string, std::vector<const FileTensor*>> by_file;
  for (const FileTensor* const tensor : opened.tensors) {
    by_file[fs::path(tensor->file).filename().string()].push_back(tensor);
  }
  nlohmann::ordered_json weight_map = nlohmann::ordered_json::object();
  for (const auto& [file, tensors] : by_file) {
    std::vector<TensorPlan> planned;
    for (const FileTensor* const tensor : tensors) {
      report.bytes_read += tensor->bytes.size();
      const bool kept = IsLinear(*tensor) && !plan.quantised.contains(tensor->name);
      if (kept || IsStackOfExperts(*tensor)) report.kept.push_back(tensor->name);
      for (TensorPlan& one : TensorsOf(plan, *tensor)) {
        report.bytes_written += one.bytes;
        weight_map[one.name] = file;
        planned.push_back(std::move(one));
      }
    }
    BATON_RETURN_IF_ERROR(
        WriteFile(plan, tensors, fmt::format("{}/{}", to, file), planned, opened));
  }
  if (by_file.size() == 1) return OkStatus();
  const nlohmann::ordered_json index = {{"metadata", {{"total_size", report.bytes_written}}},
                                        {"weight_map", weight_map}};
  return WriteText(fmt::format("{}/{}", to, kIndex), index.dump(2));
}

// Copies the files that are neither weights nor config.json: tokenizers, chat templates.
Status CopyOthers(const fs::path& from, const fs::path& to) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(from, error)) {
    const std::string name = entry.path().filename().string();
    const std::string ending = entry.path().extension().string();
    const bool weights = ending == ".safetensors" || ending == ".bin" || ending == ".pth" ||
                         ending == ".gguf" || name == kIndex;
    if (!entry.is_regular_file() || weights || name == "config.json") continue;
    fs::copy_file(entry.path(), to / name, error);
    if (error) break;
  }
  if (!error) return OkStatus();
  return MakeStatus(StatusCode::kUnavailable,
                    "{}: files cannot be copied to {}: {}",
                    from.string(),
                    to.string(),
                    error.message());
}

// Creates the directory, which must not exist or be empty.
Status CreateEmpty(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (!error && !fs::is_empty(path, error) && !error) {
    return MakeStatus(StatusCode::kAlreadyExists,
                      "{}: the directory is not empty; name a new one",
                      path.string());
  }
  if (!error) return OkStatus();
  return MakeStatus(
      StatusCode::kUnavailable, "{}: cannot be created: {}", path.string(), error.message());
}

}  // namespace

StatusOr<QuantizeReport> QuantizeCheckpoint(const std::string& from,
                                            const std::string& to,
                                            QuantizeFormat format) {
  if (!fs::is_directory(from)) {
    return InvalidArgument("{}: not a directory; only Hugging Face directories can be quantised",
                           from);
  }
  BATON_ASSIGN_OR_RETURN(const QuantizationConfig before, ReadQuantizationOf(from));
  if (before.method != QuantMethod::kNone) {
    return InvalidArgument("{}: the model is quantised already; use the one it was made of", from);
  }
  BATON_ASSIGN_OR_RETURN(const SafetensorsDirectory opened, OpenSafetensorsDirectory(from));
  BATON_ASSIGN_OR_RETURN(const std::string config_text, ReadFile(from + "/config.json"));
  BATON_ASSIGN_OR_RETURN(auto config, ParseOrderedJson(from + "/config.json", config_text));
  BATON_RETURN_IF_ERROR(CreateEmpty(to));
  const Plan plan = MakePlan(opened.tensors, format);
  std::map<std::string, std::vector<const FileTensor*>> by_file;
  for (const FileTensor* const tensor : opened.tensors) {
    by_file[fs::path(tensor->file).filename().string()].push_back(tensor);
  }
  QuantizeReport report{.matrices = plan.quantised.size()};
  BATON_RETURN_IF_ERROR(WriteWeights(plan, opened, to, report));
  BATON_RETURN_IF_ERROR(CopyOthers(from, to));
  config["quantization_config"] = ConfigOf(plan);
  BATON_RETURN_IF_ERROR(WriteText(to + "/config.json", config.dump(2)));
  return report;
}

}  // namespace baton
