#include <memory>

#include <CLI/CLI.hpp>

#include "cli/commands.h"
#include "cli/format.h"
#include "cli/report.h"
#include "common/model/describe_model.h"
#include "common/model/open_model.h"

namespace baton {
namespace {

struct InspectFlags {
  std::string path;
  bool tensors = false;
};

std::string ShapeText(const TensorInfo& tensor) {
  return fmt::format("[{}]", fmt::join(tensor.shape, ", "));
}

Status Inspect(const InspectFlags& flags) {
  BATON_ASSIGN_OR_RETURN(OpenedModel model, OpenModel(flags.path));
  FindOwnHead(model);
  const ModelDescription description = DescribeModel(model);
  std::vector<std::vector<std::string>> lines;
  for (const auto& line : description.lines) lines.push_back({line.label, line.value});
  fmt::print("{}", FormatTable(lines));
  if (!flags.tensors) return OkStatus();
  std::vector<std::vector<std::string>> rows = {{"TENSOR", "TYPE", "SHAPE"}};
  for (const auto& tensor : description.tensors) {
    rows.push_back({tensor.name, tensor.type, ShapeText(tensor)});
  }
  fmt::print("\n{}", FormatTable(rows));
  return OkStatus();
}

}  // namespace

void AddModelCommand(CLI::App& app, int& exit_status) {
  auto flags = std::make_shared<InspectFlags>();
  CLI::App* model = app.add_subcommand("model", "Inspect model files");
  model->require_subcommand(1);
  CLI::App* inspect = model->add_subcommand("inspect", "Show the contents of a model");
  inspect->add_option("path", flags->path, "a GGUF file or Hugging Face directory")->required();
  inspect->add_flag("--tensors", flags->tensors, "also list the tensors");
  inspect->callback([flags, &exit_status] { exit_status = Report(Inspect(*flags)); });
}

}  // namespace baton
