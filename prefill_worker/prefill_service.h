#pragma once

#include <memory>

#include "common/app/service.h"
#include "common/worker/worker.h"
#include "proto/config.pb.h"

namespace baton {

// Adds the prefill role to `worker`.
Status AddPrefillRole(const config::WorkerConfig& config, Worker& worker);

// Starts baton-prefill: a worker that prefills for decode workers, and serves requests alone when a
// router dispatches them so.
StatusOr<std::unique_ptr<Service>> StartPrefillWorker(const config::WorkerConfig& config,
                                                      AppContext& context);

}  // namespace baton
