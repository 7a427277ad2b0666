#pragma once

#include "common/base/status.h"
#include "common/cluster/reports.h"
#include "proto/worker.pb.h"

// Both directions of worker.proto's ToRouter, after Join.
namespace baton {

worker::v1::ToRouter ReportToProto(const WorkerReport& report);

// InvalidArgument naming the field at fault.
StatusOr<WorkerReport> ReportFromProto(const worker::v1::ToRouter& message);

}  // namespace baton
