#pragma once

#include "common/base/status.h"
#include "common/cluster/reports.h"
#include "proto/worker.pb.h"

// Both directions of worker.proto's ToRouter, after Join.
namespace baton {

worker::v1::Heartbeat ToProto(const WorkerLoad& load);
worker::v1::Token ToProto(const TokenOutput& output);
worker::v1::Finished ToProto(const FinishedReport& report);
worker::v1::Failed ToProto(const FailedReport& report);
worker::v1::Handoff ToProto(const HandoffReport& report);
worker::v1::CacheEvent ToProto(const CacheEvent& event);

// InvalidArgument naming the field at fault.
StatusOr<WorkerReport> ReportFromProto(const worker::v1::ToRouter& message);

}  // namespace baton
