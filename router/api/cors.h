#pragma once

#include <string>
#include <utility>
#include <vector>

#include "common/http/http_server.h"

namespace baton::router {

// Allows the web pages of other origins to call the HTTP API (https://fetch.spec.whatwg.org, "CORS
// protocol"). Immutable, thread-safe.
class Cors final {
 public:
  // "*" allows all origins. Empty: none.
  explicit Cors(std::vector<std::string> origins) : origins_(std::move(origins)) {}

  bool enabled() const { return !origins_.empty(); }
  // Adds the headers for the origin of the request, if that is allowed.
  void AddHeaders(HttpExchange& exchange) const;
  // Answers the question of a browser whether it may send a request.
  void ReplyToPreflight(HttpExchange& exchange, const std::string& method) const;

 private:
  const std::vector<std::string> origins_;
};

}  // namespace baton::router
