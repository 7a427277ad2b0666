#include "cli/worker_plan.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace baton {
namespace {

constexpr const char* kCpu = "cpu";
constexpr double kKvShare = 0.9;

std::vector<std::string> RankSettings(const RankCounts& ranks) {
  std::vector<std::string> settings;
  if (ranks.tensor_parallel > 1) {
    settings.push_back(fmt::format("engine.tensor_parallel={}", ranks.tensor_parallel));
  }
  if (ranks.pipeline_parallel > 1) {
    settings.push_back(fmt::format("engine.pipeline_parallel={}", ranks.pipeline_parallel));
  }
  return settings;
}

// The setting for the devices of one worker.
std::string DeviceSetting(const std::vector<std::string>& devices) {
  if (devices.size() == 1) return QuotedOverride("engine.device", devices.front());
  return "engine.devices=" + nlohmann::json(devices).dump();
}

}  // namespace

std::string QuotedOverride(const std::string& path, const std::string& value) {
  return path + "=" + nlohmann::json(value).dump();  // a JSON string is a YAML string
}

std::vector<WorkerPlan> PlanWorkers(const WorkerCounts& counts) {
  std::vector<WorkerPlan> plans;
  std::vector<std::vector<std::string>> devices;  // by plan, then by rank
  std::map<std::string, int> to_come;
  const auto add = [&](const std::string& role,
                       int count,
                       const RankCounts& ranks,
                       const std::vector<std::string>& of_role) {
    size_t next = 0;
    for (int i = 0; i < count; ++i) {
      plans.push_back({role, fmt::format("{}-{}", role, i), RankSettings(ranks), false});
      if (role == "decode" && counts.unified) plans.back().settings.push_back("unified=true");
      std::vector<std::string>& own = devices.emplace_back();
      for (int rank = 0; rank < ranks.ranks() && !of_role.empty(); ++rank) {
        own.push_back(of_role[next++ % of_role.size()]);
        ++to_come[own.back()];
      }
    }
  };
  add("prefill", counts.prefill, counts.prefill_ranks, counts.prefill_devices);
  add("decode", counts.decode, counts.decode_ranks, counts.decode_devices);
  const std::map<std::string, int> sharing = to_come;
  for (size_t i = 0; i < plans.size(); ++i) {
    if (devices[i].empty()) continue;
    plans[i].settings.push_back(DeviceSetting(devices[i]));
    int workers_to_come = 0;  // on the most shared GPU of this worker, itself included
    for (const std::string& device : devices[i]) {
      if (device == kCpu || sharing.at(device) == 1) continue;
      workers_to_come = std::max(workers_to_come, to_come[device]--);
    }
    if (workers_to_come == 0) continue;
    plans[i].after_others = true;
    plans[i].settings.push_back(
        fmt::format("engine.kv_memory_fraction={:.3f}", kKvShare / workers_to_come));
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
