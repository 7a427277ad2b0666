#include "cli/model_check.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/kernel_report/device_choice.h"
#include "common/kernel_report/kernel_report.h"
#include "common/model/count_parameters.h"
#include "common/model/decoder_weights.h"
#include "common/model/describe_model.h"
#include "common/model/op_variants.h"
#include "common/model/open_model.h"
#include "common/model/rank_plan.h"
#include "common/model/tokenizer_source.h"
#include "kernels/backend.h"
#include "kernels/cpu/cpu_isa.h"
#include "kernels/cuda/table/model_check.h"
#include "router/text/model_text.h"

namespace baton {
namespace {

namespace fs = std::filesystem;

void AddProblem(const Status& status, ModelCheck& check) {
  if (!status.ok()) check.problems.emplace_back(Message(status));
}

// The files that a Hugging Face directory lacks, whatever its configuration says.
void FindMissingFiles(const std::string& directory, ModelCheck& check) {
  std::error_code ignored;
  if (fs::exists(TokenizerFileIn(directory), ignored)) return;
  check.problems.push_back(fmt::format(
      "{} has no tokenizer.json, nor a tekken.json, tiktoken.model or tokenizer.model", directory));
}

void ReadTensors(const OpenedModel& model, ModelCheck& check) {
  std::map<std::string, size_t> types;
  for (const TensorInfo& tensor : model.weights->Tensors()) {
    check.weight_bytes += tensor.bytes;
    ++types[tensor.type];
  }
  check.parameters = CountParameters(model.spec);
  std::vector<std::string> parts;
  for (const auto& [type, count] : types) parts.push_back(fmt::format("{} {}", count, type));
  check.tensors = fmt::format("{}", fmt::join(parts, ", "));
}

void ReadWeights(const std::string& path, const ModelSpec& spec, ModelCheck& check) {
  const StatusOr<OpenedModel> model = OpenModel(path);
  if (!model.ok()) return AddProblem(model.status(), check);
  ReadTensors(*model, check);
  if (const Status complete = CheckAllWeights(spec, *model->weights); !complete.ok()) {
    return AddProblem(complete, check);
  }
  for (std::string& line : DescribeUnread(spec, *model->weights)) {
    check.notes.push_back(std::move(line));
  }
}

void ReadText(const std::string& path, ModelCheck& check) {
  const auto text = router::ModelText::Load(path, {});
  if (!text.ok()) return AddProblem(text.status(), check);
  const router::ChatFormats& formats = (*text)->formats();
  check.token_ids = (*text)->vocabulary();
  check.tool_calls = NameOf(formats.calls);
  check.reasoning = NameOf(formats.reasoning);
  if (const auto source = LoadChatTemplate(path); source.ok()) {
    check.chat_template = source->origin;
    if (formats.calls == ToolCallFormat::kNone) {
      check.notes.push_back(
          fmt::format("requests with tools are refused: {}", formats.WhyNoCalls()));
    }
  } else {
    check.notes.emplace_back(
        "the model has no chat template: only text prompts work, unless the router setting "
        "chat_template names one");
  }
}

std::vector<int32_t> DegreesOf(const ModelSpec& spec, ExchangeMode mode) {
  constexpr int32_t kMaxRanks = 64;  // engine.tensor_parallel
  std::vector<int32_t> degrees;
  for (int32_t ranks = 1; ranks <= kMaxRanks; ++ranks) {
    if (MakeRankPlan(spec, {.tensor_parallel = ranks}, mode).ok()) degrees.push_back(ranks);
  }
  return degrees;
}

DeviceCheck CheckCpu(const ModelSpec& spec, const RankPlan& plan) {
  DeviceCheck check = {.device = std::string(kCpu),
                       .description = std::string(Name(BestCpuIsa())),
                       .weights = {"as in the files"},
                       .kv = {"f16", "bf16", "f32"}};
  const auto backend = OpenBackend({});
  const Status runs = backend.ok()
                          ? (*backend)->ops().CheckModel(ModelShapeOf(spec, plan, /*fp8_kv=*/false))
                          : backend.status();
  check.refused = Message(runs);
  return check;
}

DeviceCheck CheckGpu(std::string device,
                     const ReportedGpu& gpu,
                     const ModelSpec& spec,
                     const RankPlan& plan) {
  // The name of a GPU begins with that of the device.
  const std::string description = gpu.name.substr(std::min(device.size() + 2, gpu.name.size()));
  DeviceCheck check = {.device = std::move(device), .description = description};
  const cuda::DeviceProperties& properties = gpu.limits.device;
  // The checks of a worker's start, and those of each op of a step.
  const auto runs = [&](bool fp8_weights, DType kv) {
    Status status =
        cuda::CheckModel(ModelShapeOf(spec, plan, kv == DType::kFp8), properties, false);
    if (!status.ok()) return status;
    return CheckKernels(ReportKernels(spec, gpu.limits, {.fp8_weights = fp8_weights, .kv = kv}),
                        properties);
  };
  if (const Status plain = runs(false, DType::kBF16); !plain.ok()) {
    check.refused = Message(plain);
    return check;
  }
  check.weights = {"bf16"};
  check.kv = {"bf16"};
  if (!cuda::SupportsFp8(properties)) return check;
  if (runs(true, DType::kBF16).ok()) check.weights.emplace_back("fp8");
  if (runs(false, DType::kFp8).ok()) check.kv.emplace_back("fp8");
  return check;
}

// The CPU, the GPUs of this host, and a typical card of each architecture.
void CheckDevices(const ModelSpec& spec, const std::string& cuda_library, ModelCheck& check) {
  constexpr int kMaxGpus = 64;
  const StatusOr<RankPlan> plan = MakeRankPlan(spec, {}, ExchangeMode::kGather);
  if (!plan.ok()) return AddProblem(plan.status(), check);
  check.devices.push_back(CheckCpu(spec, *plan));
  for (int i = 0; i < kMaxGpus; ++i) {
    const std::string device = fmt::format("cuda:{}", i);
    const auto gpu = FindGpu(device, /*portable=*/false, cuda_library);
    if (!gpu.ok()) break;
    check.devices.push_back(CheckGpu(device, *gpu, spec, *plan));
  }
  for (const std::string_view architecture : TypicalArchitectures()) {
    const auto gpu = TypicalGpu(architecture, /*portable=*/false);
    if (gpu.ok()) check.devices.push_back(CheckGpu(std::string(architecture), *gpu, spec, *plan));
  }
  const bool anywhere = std::ranges::any_of(
      check.devices, [](const DeviceCheck& device) { return device.refused.empty(); });
  if (!anywhere) check.problems.push_back(check.devices.front().refused);
}

}  // namespace

ModelCheck CheckModelFiles(const std::string& path, const std::string& cuda_library) {
  ModelCheck check;
  check.path = path;
  const StatusOr<ModelLocation> location = LocateModel(path);
  if (!location.ok()) {
    AddProblem(location.status(), check);
    return check;
  }
  const bool directory = location->kind == ModelLocation::Kind::kHfDirectory;
  check.format = directory ? "Hugging Face" : "GGUF";
  if (directory) FindMissingFiles(location->path, check);
  const bool has_files = check.problems.empty();
  const StatusOr<ModelSpec> spec = LoadModelSpec(path);
  if (!spec.ok()) {
    AddProblem(spec.status(), check);
    return check;
  }
  check.family = Name(spec->family);
  check.layers = spec->layer_count();
  check.context_length = spec->context_length;
  check.kv_bytes_per_token = spec->KvBytesPerToken(2);
  check.state_bytes = spec->StateBytes();
  check.tensor_parallel = DegreesOf(*spec, ExchangeMode::kGather);
  check.tensor_parallel_by_reduce = DegreesOf(*spec, ExchangeMode::kReduce);
  check.max_stages = static_cast<int32_t>(std::ranges::count_if(spec->layers, &LayerSpec::mixes));
  ReadWeights(path, *spec, check);
  if (has_files) ReadText(path, check);
  CheckDevices(*spec, cuda_library, check);
  return check;
}

}  // namespace baton
