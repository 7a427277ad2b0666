#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "cli/commands.h"
#include "cli/format.h"
#include "cli/model_check.h"
#include "cli/report.h"
#include "common/engine/arena.h"
#include "common/engine/kv_room.h"
#include "common/kvcache/layout.h"
#include "common/model/dense_kv.h"
#include "common/model/describe_model.h"
#include "common/model/family_list.h"
#include "common/model/open_model.h"
#include "common/model/quantize_checkpoint.h"

namespace baton {
namespace {

struct InspectFlags {
  std::string path;
  bool tensors = false;
  int32_t tokens = 8192;
  int32_t kv_memory_mib = 0;
};

// How many sequences of `tokens` tokens decode at a time with KV in `memory_mib` MiB at 16 bits.
std::string SequencesText(const ModelSpec& spec, int32_t tokens, int32_t memory_mib) {
  DenseKv kv = DenseKvOf(spec, {.cache_groups = true});
  kv.dtype = DType::kF16;
  const KvLayout layout = DenseLayout(kv);
  const size_t block_bytes = ShardBlockBytes(layout, WholeModel(layout));
  const auto blocks = static_cast<int32_t>(
      std::min<size_t>((size_t{1} << 20) * memory_mib / block_bytes, kMaxArenaBlocks));
  const int32_t state = StateBlocks(layout, std::vector{WholeModel(layout)});
  const KvRoom room(layout, blocks, /*max_step_tokens=*/1, state);
  const int32_t each = room.ByChunksThenDecodes(tokens, 0);
  return fmt::format("{} of {} tokens in {} MiB at 16 bits: {} blocks, {} for each",
                     blocks / each,
                     tokens,
                     memory_mib,
                     blocks,
                     each);
}

std::string ShapeText(const TensorInfo& tensor) {
  return fmt::format("[{}]", fmt::join(tensor.shape, ", "));
}

Status Inspect(const InspectFlags& flags) {
  BATON_ASSIGN_OR_RETURN(OpenedModel model, OpenModel(flags.path));
  FindOwnHead(model);
  const ModelDescription description = DescribeModel(model);
  std::vector<std::vector<std::string>> lines;
  for (const auto& line : description.lines) lines.push_back({line.label, line.value});
  if (flags.kv_memory_mib > 0) {
    lines.push_back({"sequences", SequencesText(model.spec, flags.tokens, flags.kv_memory_mib)});
  }
  fmt::print("{}", FormatTable(lines));
  if (!flags.tensors) return OkStatus();
  std::vector<std::vector<std::string>> rows = {{"TENSOR", "TYPE", "SHAPE"}};
  for (const auto& tensor : description.tensors) {
    rows.push_back({tensor.name, tensor.type, ShapeText(tensor)});
  }
  fmt::print("\n{}", FormatTable(rows));
  return OkStatus();
}

// Exit status 1: no cluster would serve the model.
int Check(const std::string& path, const std::string& cuda_library, bool json) {
  const ModelCheck check = CheckModelFiles(path, cuda_library);
  fmt::print("{}\n", json ? JsonOf(check) : TextOf(check));
  return check.runs() ? 0 : 1;
}

void AddCheck(CLI::App& model, int& exit_status) {
  struct Flags {
    std::string path;
    std::string cuda_library;
    bool json = false;
  };
  auto flags = std::make_shared<Flags>();
  CLI::App* check = model.add_subcommand(
      "check", "Tell whether a model can be served, on which devices, and what it lacks");
  check->add_option("path", flags->path, "a GGUF file or Hugging Face directory")->required();
  check->add_option("--cuda-library", flags->cuda_library, "path of libbaton_cuda.so");
  check->add_flag("--json", flags->json, "print a JSON object");
  check->callback([flags, &exit_status] {
    exit_status = Check(flags->path, flags->cuda_library, flags->json);
  });
}

Status Quantize(const std::string& from, const std::string& to, QuantizeFormat format) {
  BATON_ASSIGN_OR_RETURN(const QuantizeReport report, QuantizeCheckpoint(from, to, format));
  fmt::print("{} matrices quantised; {} of tensors, {} before\n",
             report.matrices,
             FormatBytes(report.bytes_written),
             FormatBytes(report.bytes_read));
  if (report.kept.empty()) return OkStatus();
  fmt::print("{} matrices stay as they are, such as {}\n", report.kept.size(), report.kept.front());
  return OkStatus();
}

void AddQuantize(CLI::App& model, int& exit_status) {
  struct Flags {
    std::string from;
    std::string to;
    std::string format;
  };
  auto flags = std::make_shared<Flags>();
  CLI::App* quantize = model.add_subcommand(
      "quantize", "Write a quantised copy of a model, in the layout of compressed-tensors");
  quantize->add_option("from", flags->from, "a Hugging Face directory")->required();
  quantize->add_option("to", flags->to, "the directory of the copy, which must not exist")
      ->required();
  quantize->add_option("--format", flags->format)
      ->description("w4a16 (4 bits, groups of 128 inputs) or fp8 (blocks of 128 x 128)")
      ->required()
      ->check(CLI::IsMember({"w4a16", "fp8"}));
  quantize->callback([flags, &exit_status] {
    const bool fp8 = flags->format == "fp8";
    const auto format = fp8 ? QuantizeFormat::kFp8 : QuantizeFormat::kFourBits;
    exit_status = Report(Quantize(flags->from, flags->to, format));
  });
}

void AddFamilies(CLI::App& model) {
  auto markdown = std::make_shared<bool>(false);
  CLI::App* families =
      model.add_subcommand("families", "List the model families, and how each of them is tested");
  families->add_flag("--markdown", *markdown, "print the table of common/model/README.md");
  families->callback([markdown] {
    fmt::print("{}", *markdown ? FamilyTableInMarkdown() : FormatTable(FamilyTable()));
  });
}

}  // namespace

void AddModelCommand(CLI::App& app, int& exit_status) {
  auto flags = std::make_shared<InspectFlags>();
  CLI::App* model = app.add_subcommand("model", "Inspect, check and quantise model files");
  model->require_subcommand(1);
  CLI::App* inspect = model->add_subcommand("inspect", "Show the contents of a model");
  inspect->add_option("path", flags->path, "a GGUF file or Hugging Face directory")->required();
  inspect->add_flag("--tensors", flags->tensors, "also list the tensors");
  inspect->add_option("--kv-memory-mib", flags->kv_memory_mib)
      ->description("show how many sequences have room in a KV arena of this size")
      ->check(CLI::Range(1, 1 << 24));
  inspect->add_option("--tokens", flags->tokens, "tokens of each of these sequences")
      ->check(CLI::Range(1, 1 << 24));
  inspect->callback([flags, &exit_status] { exit_status = Report(Inspect(*flags)); });
  AddCheck(*model, exit_status);
  AddQuantize(*model, exit_status);
  AddFamilies(*model);
}

}  // namespace baton
