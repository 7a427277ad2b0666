#pragma once

#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/engine/options.h"
#include "common/worker/model_host.h"
#include "kernels/device.h"
#include "proto/config.pb.h"

// A worker's configuration → our own options, with the defaults that depend on its device and role.
namespace baton {

enum class WorkerKind { kPrefill, kDecode, kUnified };

// "prefill", "decode", "unified".
std::string Name(WorkerKind kind);

ModelHostOptions ModelOptionsOf(const config::WorkerConfig& config, WorkerKind kind);
EngineOptions EngineOptionsOf(const config::WorkerConfig& config, WorkerKind kind);
// After which a step counts as one that will not end; zero: never.
Duration StepLimitOf(const config::EngineConfig& engine);
// In order of preference, for an arena in memory of that kind.
std::vector<std::string> TransportsOf(const config::TransferConfig& config, MemoryKind arena);

}  // namespace baton
