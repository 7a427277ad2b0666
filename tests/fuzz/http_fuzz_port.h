#pragma once

#include <netinet/in.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "common/http/http_server.h"

namespace baton {

// An HTTP server that serves all inputs of a fuzzer with the same limits. A handler that receives
// an incomplete request, or one that exceeds the limits, ends the fuzzer.
class HttpFuzzPort final {
 public:
  // Checks of a request that only one protocol needs.
  using Check = std::function<void(const HttpRequest&)>;

  explicit HttpFuzzPort(const HttpServerOptions& options, Check check = {});

  // Sends `bytes` in pieces of at most `piece` bytes. Returns all that the server answers.
  std::string Serve(std::string_view bytes, size_t piece);

 private:
  std::unique_ptr<HttpServer> server_;
  sockaddr_in peer_{};
};

}  // namespace baton
