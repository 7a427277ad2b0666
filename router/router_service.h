#pragma once

#include <memory>

#include "common/app/service.h"
#include "common/base/status.h"
#include "common/config/config.h"

namespace baton::router {

// Starts a router as `config` says: reads the model's tokenizer, template and identity, opens the
// ports for clients, workers and operators, adds the HTTP routes. For RunService. Errors: what is
// wrong with the model's files, the times or the addresses.
StatusOr<std::unique_ptr<Service>> StartRouter(const config::RouterConfig& config,
                                               AppContext& context);

}  // namespace baton::router
