#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "cli/commands.h"
#include "cli/format.h"
#include "cli/report.h"
#include "common/kernel_report/device_choice.h"
#include "common/kernel_report/kernel_report.h"
#include "common/model/op_variants.h"
#include "common/model/open_model.h"
#include "kernels/backend.h"
#include "kernels/cuda/table/kernel_table.h"
#include "kernels/cuda/table/variant_check.h"

namespace baton {
namespace {

struct KernelsFlags {
  std::string model;
  std::string device{kCpu};
  std::string architecture;
  std::string cuda_library;
  std::string cpu_isa{kAutoIsa};
  std::string weights = "auto";
  std::string kv = "bf16";
  int64_t rows = 8192;
  int32_t context = 2048;
  bool deterministic = false;
  bool portable = false;
  bool json = false;
};

std::string RowsText(const KernelUse& use) {
  if (use.first_row == use.last_row) return fmt::format("{}", use.first_row);
  return fmt::format("{}–{}", use.first_row, use.last_row);
}

std::string KernelText(const KernelUse& use) {
  if (use.kernel.empty()) return "none";
  return use.others.empty() ? use.kernel : fmt::format("{} (then {})", use.kernel, use.others);
}

void Print(const std::vector<KernelUse>& uses) {
  std::string op;
  for (const KernelUse& use : uses) {
    if (const std::string title = fmt::format("{} ({})", use.op, use.types); title != op) {
      fmt::print("\n{}\n", title);
      op = title;
    }
    fmt::print("  {:<11} {}{}\n",
               RowsText(use),
               KernelText(use),
               use.why.empty() ? "" : fmt::format(": {}", use.why));
    for (const auto& [kernel, reason] : use.refused) {
      fmt::print("  {:<11}   not {}: {}\n", "", kernel, reason);
    }
  }
}

Status ShowGpu(const ModelSpec& spec, const KernelsFlags& flags) {
  BATON_RETURN_IF_ERROR(cuda::CheckVariants(VariantsOf(spec)));
  const bool named = !flags.architecture.empty();
  BATON_ASSIGN_OR_RETURN(const ReportedGpu gpu,
                         named ? TypicalGpu(flags.architecture, flags.portable)
                               : FindGpu(flags.device, flags.portable, flags.cuda_library));
  const std::vector<KernelUse> uses =
      ReportKernels(spec,
                    gpu.limits,
                    {.deterministic = flags.deterministic,
                     .fp8_weights = flags.weights == "fp8",
                     .kv = flags.kv == "fp8" ? DType::kFp8 : DType::kBF16,
                     .context = flags.context,
                     .max_rows = flags.rows});
  if (flags.json) {
    for (const KernelUse& use : uses) fmt::print("{}\n", ToJson(use).dump());
  } else {
    fmt::print("{}\n", gpu.name);
    Print(uses);
  }
  Status runs = CheckKernels(uses, gpu.limits.device);
  if (runs.ok() || flags.weights != "fp8") return runs;
  return MakeStatus(runs.code(), "{}; with --weights auto they are in bf16", Message(runs));
}

Status Show(const KernelsFlags& flags) {
  BATON_ASSIGN_OR_RETURN(const ModelSpec spec, LoadModelSpec(flags.model));
  if (!flags.architecture.empty() || flags.device != kCpu) return ShowGpu(spec, flags);
  BATON_ASSIGN_OR_RETURN(const CpuIsa isa, ParseCpuIsa(flags.cpu_isa));
  const KernelUse use = ReportCpuKernels(isa, flags.rows);
  if (flags.json) {
    fmt::print("{}\n", ToJson(use).dump());
  } else {
    fmt::print("{}\n", kCpu);
    Print({use});
  }
  return OkStatus();
}

}  // namespace

void AddKernelsCommand(CLI::App& app, int& exit_status) {
  auto flags = std::make_shared<KernelsFlags>();
  CLI::App* kernels = app.add_subcommand(
      "kernels", "Show which kernels would compute a model on a device, and why");
  kernels->add_option("--model", flags->model, "a GGUF file or Hugging Face directory")->required();
  CLI::Option* device = kernels->add_option("--device", flags->device, "cpu, or a GPU: cuda:0");
  kernels
      ->add_option("--arch",
                   flags->architecture,
                   "instead of a GPU of this host, a typical card of this architecture: sm_90")
      ->excludes(device);
  kernels->add_option("--cuda-library", flags->cuda_library, "path of libbaton_cuda.so");
  kernels->add_option("--cpu-isa", flags->cpu_isa, "engine.cpu_isa of the worker");
  kernels->add_option("--weights", flags->weights, "how a GPU stores the weights of layers")
      ->check(CLI::IsMember({"auto", "fp8"}));
  kernels->add_option("--kv", flags->kv, "type of the KV cache of a GPU")
      ->check(CLI::IsMember({"bf16", "fp8"}));
  kernels->add_option("--rows", flags->rows, "the most rows of a step")
      ->check(CLI::Range(1, 65536));
  kernels->add_option("--context", flags->context, "positions of each decoding sequence")
      ->check(CLI::Range(1, 1 << 20));
  kernels->add_flag("--deterministic", flags->deterministic, "engine.deterministic of the worker");
  kernels->add_flag("--portable", flags->portable, "engine.kernels: portable");
  kernels->add_flag("--json", flags->json, "print a JSON object for each line");
  kernels->callback([flags, &exit_status] { exit_status = Report(Show(*flags)); });
}

}  // namespace baton
