#pragma once

#include <nlohmann/json.hpp>

namespace baton {

// Measures the overhead of the router's two APIs, gRPC and HTTP (server-sent events). A fake worker
// that computes nothing answers each request at once with one token. For each API the result holds
// the median and p99 time to first token of one client, and the requests per second of 16 clients.
nlohmann::json MeasureApiOverhead();

}  // namespace baton
