#include "common/http/http_error.h"

#include <nlohmann/json.hpp>

namespace baton {

std::string HttpErrorBody(int status, std::string_view message) {
  using Json = nlohmann::ordered_json;
  const char* type = status < 500 ? "invalid_request_error" : "server_error";
  Json code = nullptr;
  if (status == 401) code = "invalid_api_key";
  if (status == 405) code = "method_not_supported";
  // `type` is Anthropic's: the body has the form of both APIs.
  const Json body = {
      {"type", "error"},
      {"error", {{"message", message}, {"type", type}, {"param", nullptr}, {"code", code}}}};
  // The message may quote bytes of the request that are not UTF-8.
  return body.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace baton
