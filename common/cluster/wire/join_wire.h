#pragma once

#include "common/base/status.h"
#include "common/cluster/worker_info.h"
#include "proto/worker.pb.h"

// Both directions of the first message of each side in worker.proto: Join and Welcome.
namespace baton {

worker::v1::ToRouter JoinToProto(const WorkerInfo& info);

// The first message of a worker. InvalidArgument naming the field that is missing or wrong,
// FailedPrecondition for another protocol version.
StatusOr<WorkerInfo> WorkerInfoFromProto(const worker::v1::ToRouter& message);

worker::v1::ToWorker WelcomeToProto(const Welcome& welcome);

// The first message of a router, which may carry commands as well. InvalidArgument when it is not a
// Welcome.
StatusOr<Welcome> WelcomeFromProto(const worker::v1::ToWorker& message);

}  // namespace baton
