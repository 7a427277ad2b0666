#include "common/worker/rank_config_wire.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <string>
#include <utility>

#include "common/app/version.h"
#include "common/config/config.h"
#include "common/engine/arena.h"
#include "common/group/step_message.h"
#include "kernels/backend.h"

namespace baton {
namespace {

// The limit of a step in a group where engine.step_limit_seconds sets none: a rank that hangs would
// otherwise hold the others for ever.
constexpr Duration kDefaultLimit = std::chrono::seconds(60);

}  // namespace

GroupShape GroupShapeOf(const config::WorkerConfig& config) {
  return {config.engine().tensor_parallel(), config.engine().pipeline_parallel()};
}

Status CheckDeviceCount(const config::WorkerConfig& config) {
  const config::EngineConfig& engine = config.engine();
  const int ranks = GroupShapeOf(config).ranks();
  const int devices = engine.devices_size();
  if (devices == 0) {
    if (ranks == 1 || engine.device() == kCpu) return OkStatus();
    return InvalidArgument(
        "engine.devices must name a GPU for each of the {} ranks; engine.device names only one",
        ranks);
  }
  if (devices != ranks) {
    return InvalidArgument(
        "engine.devices names {} devices; tensor_parallel {} times pipeline_parallel {} is {} "
        "ranks",
        devices,
        engine.tensor_parallel(),
        engine.pipeline_parallel(),
        ranks);
  }
  return OkStatus();
}

Status CheckDevices(const config::WorkerConfig& config, std::span<const int> hosts) {
  BATON_RETURN_IF_ERROR(CheckDeviceCount(config));
  const auto& devices = config.engine().devices();
  std::set<std::pair<int, std::string>> gpus;
  for (int rank = 0; rank < devices.size(); ++rank) {
    const int host = hosts.empty() ? 0 : hosts[rank];
    if (devices[rank] != kCpu && !gpus.insert({host, devices[rank]}).second) {
      return InvalidArgument("engine.devices names {} twice; each rank needs its own GPU",
                             devices[rank]);
    }
  }
  return OkStatus();
}

CollectiveOptions CollectiveOptionsOf(const config::WorkerConfig& config) {
  CollectiveOptions options;
  const Duration limit = StepLimitOf(config.engine());
  options.limit = limit > Duration::zero() ? limit : kDefaultLimit;
  return options;
}

ModelHostOptions RankModelOptions(const config::WorkerConfig& config,
                                  WorkerKind kind,
                                  int rank,
                                  const RankGroups& groups,
                                  std::span<const int> hosts) {
  ModelHostOptions options = ModelOptionsOf(config, kind);
  options.backend.device = DeviceOf(config.engine(), rank);
  options.backend.groups = groups;
  options.ranks_on_host = hosts.empty() ? GroupShapeOf(config).ranks()
                                        : static_cast<int>(std::ranges::count(hosts, hosts[rank]));
  return options;
}

RankHello HelloOf(const config::WorkerConfig& config, int rank, ModelHost& model, int32_t blocks) {
  return {.rank = rank,
          .program = fmt::format("{} of compiler {}", Version(), kBackendVersion),
          .settings = ToYaml(config),
          .fingerprint = fmt::format("{}", model.traits().fingerprint),
          .weights = model.weights_hash(),
          .device = model.device_name(),
          .blocks = blocks};
}

size_t MaxGroupMessageBytes(const config::WorkerConfig& config, const ModelTraits& traits) {
  const int32_t block_tokens = config.engine().block_tokens();
  const int32_t sequences = config.engine().max_sequences();
  const int32_t blocks = (traits.context_length + block_tokens - 1) / block_tokens;
  // With the smallest blocks of tokens, states take most blocks.
  const KvLayout layout = LayoutFor({.block_tokens = block_tokens, .dtype = DType::kFp8}, traits);
  return MaxStepMessageBytes(std::max(traits.max_rows, traits.max_logit_rows),
                             sequences,
                             std::max(blocks, sequences) * std::ssize(layout.groups) +
                                 3 * int64_t{MaxStateBlocks(layout)});
}

}  // namespace baton
