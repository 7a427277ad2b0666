#include "common/http/http_serving.h"

#include <utility>

#include <boost/asio/post.hpp>

#include "common/base/exception_border.h"
#include "common/log/log.h"

namespace baton {
namespace {

const Logger kLog("http");

}  // namespace

HttpAdmission AdmitRequest(HttpShared& shared,
                           const ConnectionSlots::Slot& slot,
                           std::optional<uint64_t> stated_bytes,
                           HttpRequest& request) {
  HttpAdmission admission;
  admission.max_body_bytes = shared.options.max_body_bytes;
  bool open_to_all = false;
  if (shared.options.gate) {
    HttpVerdict verdict = shared.options.gate(request);
    open_to_all = verdict.open;
    if (verdict.status != 0) {
      admission.refusal = {verdict.status, verdict.message, verdict.challenge};
      return admission;
    }
    if (!verdict.client.empty()) request.client = std::move(verdict.client);
    if (verdict.max_body_bytes != 0 && verdict.max_body_bytes < admission.max_body_bytes) {
      admission.max_body_bytes = verdict.max_body_bytes;
      if (stated_bytes.value_or(0) > admission.max_body_bytes) {
        admission.refusal = {
            413,
            fmt::format("the body is over this key's limit of {} bytes", admission.max_body_bytes)};
        return admission;
      }
    }
  }
  if (stated_bytes.value_or(0) > admission.max_body_bytes) {
    admission.refusal = BodyTooLarge(admission.max_body_bytes);
    return admission;
  }
  admission.match = shared.routes.Find(request.method, request.path);
  const bool is_probe = admission.match.route.is_probe;
  if (slot.reserved() && !is_probe) admission.refusal = {503, slot.over_limit()};
  if (shared.starting && !is_probe && admission.refusal.status == 0) {
    admission.refusal = {503, "this process is starting; /readyz tells when it is ready"};
  }
  if (shared.unsent_bytes > shared.options.max_unsent_bytes_in_all && !is_probe &&
      admission.refusal.status == 0) {
    admission.refusal = {503,
                         fmt::format("answers that their clients have not read yet have reached "
                                     "the limit of {} bytes",
                                     shared.options.max_unsent_bytes_in_all)};
  }
  admission.proven = admission.refusal.status == 0 && !open_to_all && !is_probe;
  return admission;
}

HttpRefusal BodyTooLarge(size_t max_body_bytes) {
  return {413, fmt::format("the body is over the limit of {} bytes", max_body_bytes)};
}

HttpRefusal HeaderTooLarge(size_t max_header_bytes) {
  return {431, fmt::format("the header is over the limit of {} bytes", max_header_bytes)};
}

HttpRefusal TooManyWaitingBodies(const std::string& limit) {
  return {503,
          fmt::format("the bodies of requests that wait for an answer have reached the limit of {}",
                      limit)};
}

void AnswerRefusal(HttpShared& shared, ConnectionExchange& exchange, const HttpRefusal& refusal) {
  shared.probe.OnRefused(refusal.status);
  if (refusal.status == 503) exchange.AddHeader("Retry-After", "1");
  if (!refusal.challenge.empty()) exchange.AddHeader("WWW-Authenticate", refusal.challenge);
  exchange.Fail(refusal.status, refusal.message);
}

void AnswerWithoutHandler(HttpShared& shared,
                          ConnectionExchange& exchange,
                          const HttpRoutes::Match& match) {
  const HttpRequest& request = exchange.request();
  const bool any = request.method == "OPTIONS" && request.path == "*";
  const std::string allow = any ? "GET, HEAD, POST, OPTIONS" : match.allow;
  if (!allow.empty()) exchange.AddHeader("Allow", allow);
  if (request.method == "OPTIONS" && !allow.empty()) return exchange.Reply(204, "", "");
  const int status = allow.empty() ? 404 : 405;
  const std::string target = Shown(fmt::format("{} {}", request.method, request.path));
  shared.probe.OnRefused(status);
  exchange.Fail(status,
                status == 404
                    ? fmt::format("nothing is served at {}", target)
                    : fmt::format("{} is not possible; possible methods are {}", target, allow));
}

void CallHandler(const std::shared_ptr<HttpShared>& shared,
                 HttpRoutes::Route route,
                 std::shared_ptr<ConnectionExchange> exchange) {
  auto job = [shared, handler = std::move(route.handler), exchange] {
    const auto thrown = CaughtFrom([&] { handler(exchange); });
    if (!thrown.has_value()) return;
    shared->probe.OnException();
    kLog.Error("request {}: the handler of {} {} failed: {}",
               exchange->request().id,
               exchange->request().method,
               Shown(exchange->request().path),
               *thrown);
    exchange->Fail(500, "the server failed to handle this request; its log says why");
  };
  if (route.run) return route.run(exchange, std::move(job));
  boost::asio::post(route.is_probe ? shared->probe_handlers : shared->handlers, std::move(job));
}

}  // namespace baton
