#pragma once

#include <nlohmann/json.hpp>

namespace baton {

// What the router's two APIs cost: a worker that computes nothing answers each request at once with
// one token. For gRPC and for HTTP (streams of events), the median time to first token of requests
// one after the other, and the requests a second of 16 clients.
nlohmann::json MeasureApiOverhead();

}  // namespace baton
