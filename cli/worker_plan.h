#pragma once

#include <string>
#include <vector>

namespace baton {

// Which workers a cluster on this machine is to have. Devices are dealt out in turn; an empty list:
// what the configuration says.
struct WorkerCounts {
  int prefill = 0;
  int decode = 0;
  std::vector<std::string> prefill_devices;  // "cpu", "cuda:0"
  std::vector<std::string> decode_devices;
  bool unified = false;  // decode workers prefill, too
};

// One worker of it.
struct WorkerPlan {
  std::string role;                   // "prefill", "decode"
  std::string name;                   // "prefill-0"
  std::vector<std::string> settings;  // --set
  // Shares a GPU: to be started when those before it are ready, since each takes its part of the
  // memory that it finds free.
  bool after_others = false;
};

// "path=value" for --set, with the value quoted for YAML.
std::string QuotedOverride(const std::string& path, const std::string& value);

// Prefill workers first. Those that share a GPU get parts of its free memory for their KV.
std::vector<WorkerPlan> PlanWorkers(const WorkerCounts& counts);

// The numbers of workers for whom only devices are named: one a device; on the only GPU there is,
// one that serves alone. `devices` are for both roles, and are split between them.
WorkerCounts CountsForDevices(const std::vector<std::string>& devices);

}  // namespace baton
