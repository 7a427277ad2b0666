#pragma once

#include <memory>
#include <string>

#include "common/app/service.h"
#include "common/worker/worker.h"
#include "proto/config.pb.h"

namespace baton {

// Gives `worker` the ability to decode; returns the address of its KvControl, as others are told.
StatusOr<std::string> AddDecodeRole(const config::WorkerConfig& config, Worker& worker);

// baton-decode: a worker that takes KV from prefill workers and generates; serves whole requests,
// too; with `unified` it also prefills for others.
StatusOr<std::unique_ptr<Service>> StartDecodeWorker(const config::WorkerConfig& config,
                                                     AppContext& context);

}  // namespace baton
