#pragma once

#include <memory>

#include "common/app/service.h"
#include "common/worker/worker.h"
#include "proto/config.pb.h"

namespace baton {

// Gives `worker` the ability to prefill.
Status AddPrefillRole(const config::WorkerConfig& config, Worker& worker);

// baton-prefill: a worker that prefills for others, and serves whole requests when asked to.
StatusOr<std::unique_ptr<Service>> StartPrefillWorker(const config::WorkerConfig& config,
                                                      AppContext& context);

}  // namespace baton
