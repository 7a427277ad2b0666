#include "cli/worker_plan.h"

#include <map>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace baton {
namespace {

constexpr const char* kCpu = "cpu";
constexpr double kKvShare = 0.9;

}  // namespace

std::string QuotedOverride(const std::string& path, const std::string& value) {
  return path + "=" + nlohmann::json(value).dump();  // a JSON string is a YAML string
}

std::vector<WorkerPlan> PlanWorkers(const WorkerCounts& counts) {
  std::vector<WorkerPlan> plans;
  std::vector<std::string> devices;  // by plan
  std::map<std::string, int> to_come;
  const auto add =
      [&](const std::string& role, int count, const std::vector<std::string>& of_role) {
        for (int i = 0; i < count; ++i) {
          const std::string device =
              of_role.empty() ? "" : of_role[static_cast<size_t>(i) % of_role.size()];
          plans.push_back({role, fmt::format("{}-{}", role, i), {}, false});
          if (role == "decode" && counts.unified) plans.back().settings.push_back("unified=true");
          devices.push_back(device);
          ++to_come[device];
        }
      };
  add("prefill", counts.prefill, counts.prefill_devices);
  add("decode", counts.decode, counts.decode_devices);
  const std::map<std::string, int> sharing = to_come;
  for (size_t i = 0; i < plans.size(); ++i) {
    const std::string& device = devices[i];
    if (device.empty()) continue;
    plans[i].settings.push_back(QuotedOverride("engine.device", device));
    if (device == kCpu || sharing.at(device) == 1) continue;
    plans[i].after_others = true;
    plans[i].settings.push_back(
        fmt::format("engine.kv_memory_fraction={:.3f}", kKvShare / to_come[device]--));
  }
  return plans;
}

WorkerCounts CountsForDevices(const std::vector<std::string>& devices) {
  WorkerCounts counts;
  const size_t prefill = devices.size() / 2;
  counts.prefill_devices.assign(devices.begin(), devices.begin() + static_cast<long>(prefill));
  counts.decode_devices.assign(devices.begin() + static_cast<long>(prefill), devices.end());
  counts.prefill = static_cast<int>(counts.prefill_devices.size());
  counts.decode = static_cast<int>(counts.decode_devices.size());
  counts.unified = counts.prefill == 0;
  return counts;
}

}  // namespace baton
