#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "cli/format.h"
#include "cli/model_check.h"

namespace baton {
namespace {

std::string MebibytesText(size_t bytes) {
  return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1 << 20));
}

std::vector<std::vector<std::string>> ModelRows(const ModelCheck& check) {
  std::vector<std::vector<std::string>> rows;
  const auto add = [&rows](std::string label, std::string value) {
    if (!value.empty()) rows.push_back({std::move(label), std::move(value)});
  };
  add("format", check.format);
  if (check.family.empty()) return rows;
  add("family", fmt::format("{}, {} layers", check.family, check.layers));
  add("context length", fmt::format("{} tokens", check.context_length));
  if (check.weight_bytes > 0) {
    add("weights", fmt::format("{} parameters ({})", check.parameters, check.tensors));
    add("memory of weights",
        fmt::format("{} as in the files, {} in bf16",
                    MebibytesText(check.weight_bytes),
                    MebibytesText(2 * static_cast<size_t>(check.parameters))));
  }
  add("memory of KV",
      fmt::format("{} bytes per token at 16 bits, {} in FP8",
                  check.kv_bytes_per_token,
                  check.kv_bytes_per_token / 2));
  if (check.state_bytes > 0) {
    add("memory of states", fmt::format("{} per sequence", MebibytesText(check.state_bytes)));
  }
  add("tensor parallel",
      fmt::format("{}; GPUs that are not deterministic: {}",
                  fmt::join(check.tensor_parallel, ", "),
                  fmt::join(check.tensor_parallel_by_reduce, ", ")));
  add("pipeline parallel", fmt::format("1 to {}", check.max_stages));
  if (check.token_ids > 0) {
    add("tokenizer", fmt::format("{} token ids", check.token_ids));
    add("chat template", check.chat_template.empty() ? "none" : check.chat_template);
    add("tool calls", check.tool_calls);
    add("reasoning", check.reasoning);
  }
  return rows;
}

std::vector<std::vector<std::string>> DeviceRows(const ModelCheck& check) {
  std::vector<std::vector<std::string>> rows = {{"DEVICE", "WEIGHTS", "KV", ""}};
  for (const DeviceCheck& device : check.devices) {
    if (device.refused.empty()) {
      rows.push_back({device.device,
                      fmt::format("{}", fmt::join(device.weights, ", ")),
                      fmt::format("{}", fmt::join(device.kv, ", ")),
                      device.description});
    } else {
      rows.push_back({device.device, "no", "", device.refused});
    }
  }
  return rows;
}

}  // namespace

std::string TextOf(const ModelCheck& check) {
  std::string text = fmt::format("{} {}\n", check.path, check.runs() ? "runs" : "does not run");
  for (const std::string& problem : check.problems) text += fmt::format("  {}\n", problem);
  text += FormatTable(ModelRows(check));
  if (!check.devices.empty()) text += "\n" + FormatTable(DeviceRows(check));
  for (const std::string& note : check.notes) text += fmt::format("note: {}\n", note);
  return text;
}

std::string JsonOf(const ModelCheck& check) {
  nlohmann::json devices = nlohmann::json::array();
  for (const DeviceCheck& device : check.devices) {
    devices.push_back({{"device", device.device},
                       {"description", device.description},
                       {"runs", device.refused.empty()},
                       {"refused", device.refused},
                       {"weights", device.weights},
                       {"kv", device.kv}});
  }
  const nlohmann::json json = {{"path", check.path},
                               {"runs", check.runs()},
                               {"problems", check.problems},
                               {"notes", check.notes},
                               {"format", check.format},
                               {"family", check.family},
                               {"layers", check.layers},
                               {"context_length", check.context_length},
                               {"parameters", check.parameters},
                               {"tensors", check.tensors},
                               {"weight_bytes", check.weight_bytes},
                               {"kv_bytes_per_token", check.kv_bytes_per_token},
                               {"state_bytes", check.state_bytes},
                               {"tensor_parallel", check.tensor_parallel},
                               {"tensor_parallel_by_reduce", check.tensor_parallel_by_reduce},
                               {"max_stages", check.max_stages},
                               {"token_ids", check.token_ids},
                               {"chat_template", check.chat_template},
                               {"tool_calls", check.tool_calls},
                               {"reasoning", check.reasoning},
                               {"devices", devices}};
  // Names in files may be no UTF-8.
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace baton
