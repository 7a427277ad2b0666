#pragma once

#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/engine/options.h"
#include "common/worker/model_host.h"
#include "kernels/device.h"
#include "proto/config.pb.h"

// Turns a worker's configuration into our own options. Fills in the defaults that depend on the
// device and the role.
namespace baton {

enum class WorkerKind { kPrefill, kDecode, kUnified };

// "prefill", "decode", "unified".
std::string Name(WorkerKind kind);

// The device on which this rank computes.
std::string DeviceOf(const config::EngineConfig& engine, int rank);
// WorkerInfo::deterministic.
bool IsDeterministic(const config::EngineConfig& engine, WorkerKind kind);
ModelHostOptions ModelOptionsOf(const config::WorkerConfig& config, WorkerKind kind);
KvOptions KvOptionsOf(const config::WorkerConfig& config);
EngineOptions EngineOptionsOf(const config::WorkerConfig& config, WorkerKind kind);
// The time after which a step counts as hung. Zero: steps have no limit.
Duration StepLimitOf(const config::EngineConfig& engine);
// The transports in order of preference. The default depends on the memory that the arena is in.
std::vector<std::string> TransportsOf(const config::TransferConfig& config, MemoryKind arena);

}  // namespace baton
