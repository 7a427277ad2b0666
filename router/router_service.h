#pragma once

#include <memory>

#include "common/app/service.h"
#include "common/base/status.h"
#include "common/config/config.h"

namespace baton::router {

// Starts a router as configured: reads the model's tokenizer, template and identity, opens the
// ports for clients, workers and operators, and adds the HTTP routes. For RunService. Errors:
// faults of the model's files, of the configured times or of the addresses.
StatusOr<std::unique_ptr<Service>> StartRouter(const config::RouterConfig& config,
                                               AppContext& context);

}  // namespace baton::router
