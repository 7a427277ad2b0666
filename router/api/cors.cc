#include "router/api/cors.h"

#include <algorithm>

namespace baton::router {

void Cors::AddHeaders(HttpExchange& exchange) const {
  if (!enabled()) return;
  const std::string origin(exchange.request().header("origin"));
  const bool all = std::find(origins_.begin(), origins_.end(), "*") != origins_.end();
  const bool known = std::find(origins_.begin(), origins_.end(), origin) != origins_.end();
  if (!all) exchange.AddHeader("Vary", "Origin");
  if (origin.empty() || (!all && !known)) return;
  exchange.AddHeader("Access-Control-Allow-Origin", all ? "*" : origin);
  exchange.AddHeader("Access-Control-Expose-Headers", "x-request-id, request-id, retry-after");
}

void Cors::ReplyToPreflight(HttpExchange& exchange, const std::string& method) const {
  constexpr const char* kMaxAgeSeconds = "600";
  AddHeaders(exchange);
  exchange.AddHeader("Access-Control-Allow-Methods", method);
  const std::string headers(exchange.request().header("access-control-request-headers"));
  if (!headers.empty()) exchange.AddHeader("Access-Control-Allow-Headers", headers);
  exchange.AddHeader("Access-Control-Max-Age", kMaxAgeSeconds);
  exchange.Reply(204, "", "");
}

}  // namespace baton::router
