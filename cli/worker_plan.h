#pragma once

#include <string>
#include <vector>

namespace baton {

// The ranks of each worker of a role.
struct RankCounts {
  int tensor_parallel = 1;
  int pipeline_parallel = 1;

  int ranks() const { return tensor_parallel * pipeline_parallel; }
};

// The workers that a cluster on this machine shall have. Devices are assigned in turn, one to each
// rank; an empty list means the default of the configuration.
struct WorkerCounts {
  int prefill = 0;
  int decode = 0;
  RankCounts prefill_ranks;
  RankCounts decode_ranks;
  std::vector<std::string> prefill_devices;  // "cpu", "cuda:0"
  std::vector<std::string> decode_devices;
  bool unified = false;  // decode workers also prefill
};

// One worker of such a cluster.
struct WorkerPlan {
  std::string role;                   // "prefill", "decode"
  std::string name;                   // "prefill-0"
  std::vector<std::string> settings;  // arguments for --set
  // The worker shares a GPU. It must start after the workers before it are ready, because each
  // takes a share of the memory that is free when it starts.
  bool after_others = false;
};

// "path=value" for --set, with the value quoted for YAML.
std::string QuotedOverride(const std::string& path, const std::string& value);

// Plans prefill workers first. Workers that share a GPU get shares of its free memory for their KV
// arenas.
std::vector<WorkerPlan> PlanWorkers(const WorkerCounts& counts);

// The workers when only devices are given, for both roles: one worker per device, the first half
// (rounded down) prefill workers. A single device gets one unified worker.
WorkerCounts CountsForDevices(const std::vector<std::string>& devices);

}  // namespace baton
