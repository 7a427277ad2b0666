#pragma once

#include <cstdint>
#include <span>

#include "common/collective/collective_options.h"
#include "common/group/group_shape.h"
#include "common/group/rank_hello.h"
#include "common/worker/config_wire.h"
#include "common/worker/model_host.h"
#include "proto/config.pb.h"

// What the leader and the followers of a worker's group derive alike from the configuration.
namespace baton {

// The longest time in which a rank starts, its model included.
inline constexpr Duration kRankStartLimit = std::chrono::minutes(30);

GroupShape GroupShapeOf(const config::WorkerConfig& config);
// InvalidArgument when the number of devices is not that of the ranks.
Status CheckDeviceCount(const config::WorkerConfig& config);
// The same, and when two ranks of one host have the same GPU. `hosts`: by rank, the lowest rank of
// the same host; empty when all ranks are on one host.
Status CheckDevices(const config::WorkerConfig& config, std::span<const int> hosts = {});
CollectiveOptions CollectiveOptionsOf(const config::WorkerConfig& config);

// The model of one rank: its device, its threads and its groups. `hosts`: as in CheckDevices.
ModelHostOptions RankModelOptions(const config::WorkerConfig& config,
                                  WorkerKind kind,
                                  int rank,
                                  const RankGroups& groups,
                                  std::span<const int> hosts = {});

// `blocks`: the KV blocks that the rank can hold.
RankHello HelloOf(const config::WorkerConfig& config, int rank, ModelHost& model, int32_t blocks);

// The most bytes of a step message of the group.
size_t MaxGroupMessageBytes(const config::WorkerConfig& config, const ModelTraits& traits);

}  // namespace baton
