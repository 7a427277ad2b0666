#pragma once

#include <span>

#include "common/base/status.h"
#include "proto/worker.pb.h"
#include "router/types.h"

// Converts between the messages of worker.proto and the router's own types.
namespace baton::router {

// Checks and converts a worker's first message. Errors: InvalidArgument naming the field that is
// missing or wrong; FailedPrecondition for another protocol version.
StatusOr<WorkerInfo> WorkerInfoFromProto(const worker::v1::ToRouter& message);

// Checks and converts any later message. Errors: InvalidArgument naming the field at fault.
StatusOr<WorkerReport> ReportFromProto(const worker::v1::ToRouter& message);

worker::v1::ToWorker CommandsToProto(std::span<const WorkerCommand> commands);

}  // namespace baton::router
