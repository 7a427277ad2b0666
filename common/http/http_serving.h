#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "common/http/http_exchange.h"
#include "common/http/http_head.h"
#include "common/http/http_limits.h"
#include "common/http/http_routes.h"
#include "common/http/http_server.h"
#include "common/http/http_shared.h"

// The steps of serving a request that do not depend on the protocol. Used on the io thread.
namespace baton {

// What is decided about a request when its header is complete.
struct HttpAdmission {
  HttpRefusal refusal;        // status 0: the request is served
  HttpRoutes::Match match;    // of a request that is not refused
  size_t max_body_bytes = 0;  // of this request
  bool proven = false;        // the request passed a gate that is not open to everyone
};

// Asks the gate, which may name the client in `request`, and finds the route. `slot`: of the
// request. `stated_bytes`: the body's length as the header states it.
HttpAdmission AdmitRequest(HttpShared& shared,
                           const ConnectionSlots::Slot& slot,
                           std::optional<uint64_t> stated_bytes,
                           HttpRequest& request);

HttpRefusal BodyTooLarge(size_t max_body_bytes);
HttpRefusal HeaderTooLarge(size_t max_header_bytes);
HttpRefusal TooManyWaitingBodies(const std::string& limit);

// Answers with an error of the server itself, and counts it.
void AnswerRefusal(HttpShared& shared, ConnectionExchange& exchange, const HttpRefusal& refusal);

// Answers a request that `match` has no handler for: OPTIONS, else 404 or 405.
void AnswerWithoutHandler(HttpShared& shared,
                          ConnectionExchange& exchange,
                          const HttpRoutes::Match& match);

// Calls the route's handler on the thread that the route chooses, or on one for handlers or probes.
// An exception is answered with 500, logged and counted.
void CallHandler(const std::shared_ptr<HttpShared>& shared,
                 HttpRoutes::Route route,
                 std::shared_ptr<ConnectionExchange> exchange);

}  // namespace baton
