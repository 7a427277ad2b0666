#pragma once

#include <span>

#include "common/base/status.h"
#include "proto/worker.pb.h"
#include "router/types.h"

// Between worker.proto's messages and the router's own words.
namespace baton::router {

// Checks a worker's first message. InvalidArgument naming the field that is missing or wrong,
// FailedPrecondition for another protocol version.
StatusOr<WorkerInfo> WorkerInfoFromProto(const worker::v1::ToRouter& message);

// InvalidArgument naming the field at fault.
StatusOr<WorkerReport> ReportFromProto(const worker::v1::ToRouter& message);

worker::v1::ToWorker CommandsToProto(std::span<const WorkerCommand> commands);

}  // namespace baton::router
