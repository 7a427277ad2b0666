#pragma once

#include "common/base/status.h"
#include "common/cluster/worker_info.h"
#include "proto/worker.pb.h"

// Both directions of worker.proto's Join.
namespace baton {

worker::v1::Join ToProto(const WorkerInfo& info);

// The first message of a worker. InvalidArgument naming the field that is missing or wrong,
// FailedPrecondition for another protocol version.
StatusOr<WorkerInfo> WorkerInfoFromProto(const worker::v1::ToRouter& message);

}  // namespace baton
