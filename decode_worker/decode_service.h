#pragma once

#include <memory>
#include <string>

#include "common/app/service.h"
#include "common/worker/worker.h"
#include "proto/config.pb.h"

namespace baton {

// Adds the decode role to `worker`. Returns the advertised address of its KvControl.
StatusOr<std::string> AddDecodeRole(const config::WorkerConfig& config, Worker& worker);

// Starts baton-decode: a worker that receives KV from prefill workers and generates. It also serves
// requests alone. With `unified` it also prefills for other decode workers.
StatusOr<std::unique_ptr<Service>> StartDecodeWorker(const config::WorkerConfig& config,
                                                     AppContext& context);

}  // namespace baton
