#pragma once

#include <span>
#include <vector>

#include "common/base/clock.h"
#include "common/cluster/commands.h"
#include "common/cluster/reports.h"
#include "proto/worker.pb.h"

// Both directions of worker.proto's ToWorker, after Welcome.
namespace baton {

// `now`: deadlines cross as the time that is left.
worker::v1::ToWorker CommandsToProto(std::span<const WorkerCommand> commands, Time now);

struct DecodedCommands {
  // Dispatches, redirects, cancels, peers, snapshot and drain, in this order.
  std::vector<WorkerCommand> commands;
  // Requests whose dispatch or redirect is invalid: InvalidArgument naming the field, its value,
  // and what would be right. What depends on the model (token ids, lengths) is checked by the
  // engine.
  std::vector<FailedReport> refused;
};

// `now` is the arrival of the dispatched requests.
DecodedCommands CommandsFromProto(const worker::v1::ToWorker& message, Time now);

}  // namespace baton
