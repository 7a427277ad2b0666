#include "common/http/http_shared.h"

namespace baton {

HttpShared::HttpShared(const HttpServerOptions& options_in)
    : options(options_in),
      probe(options.metrics == nullptr ? own_metrics : *options.metrics),
      slots({options.max_connections,
             options.max_connections_per_address,
             options.reserved_connections}),
      waiting_bodies(options.max_waiting_body_bytes),
      handlers(static_cast<size_t>(options.handler_threads)),
      starting(options.starting) {}

}  // namespace baton
