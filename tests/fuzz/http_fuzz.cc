// What a client sends to an HTTP port: request lines, headers, bodies with a length or in chunks,
// and further requests on the same connection. The first byte of the input selects the server's
// limits and the size of the pieces in which the rest is sent. The server must not crash, every
// answer must be an HTTP answer, and a handler must receive only complete requests within the
// limits.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>

#include "common/base/check.h"
#include "common/base/unique_fd.h"
#include "common/http/http_server.h"

namespace baton {
namespace {

// The limits of a process by default, or limits that short inputs reach.
HttpServerOptions Options(bool small) {
  HttpServerOptions options;
  if (small) {
    options.max_header_bytes = 1024;
    options.max_body_bytes = 64;
  }
  return options;
}

void CheckRequest(const HttpRequest& request, const HttpServerOptions& limits) {
  BATON_CHECK(request.body.size() <= limits.max_body_bytes,
              "the handler received a body of {} bytes",
              request.body.size());
  size_t header = request.path.size() + request.query.size();
  for (const auto& [name, value] : request.headers) {
    header += name.size() + value.size();
    BATON_CHECK(!name.empty() && name.find_first_of("\r\n: ") == std::string::npos &&
                    std::ranges::none_of(name, [](char c) { return c >= 'A' && c <= 'Z'; }),
                "the handler received the header name '{}'",
                name);
    BATON_CHECK(value.find_first_of(std::string_view("\r\n\0", 3)) == std::string::npos,
                "the handler received the header value '{}'",
                value);
  }
  BATON_CHECK(header <= limits.max_header_bytes, "the handler received {} header bytes", header);
}

// An HTTP server that serves all inputs of the fuzzer with the same limits.
class Port final {
 public:
  explicit Port(const HttpServerOptions& options) : server_(*HttpServer::Start(options)) {
    server_->AddRoute("POST", "/echo", [options](const std::shared_ptr<HttpExchange>& exchange) {
      CheckRequest(exchange->request(), options);
      exchange->Reply(200, "text/plain", exchange->request().body);
    });
    server_->AddRoute("GET", "/stream", [options](const std::shared_ptr<HttpExchange>& exchange) {
      CheckRequest(exchange->request(), options);
      exchange->Begin(200, "text/event-stream");
      exchange->Write("data: 1\n\n");
      exchange->Finish();
    });
    server_->AddProbe("/health", [options](const std::shared_ptr<HttpExchange>& exchange) {
      CheckRequest(exchange->request(), options);
      exchange->Reply(200, "text/plain", "ok");
    });
    const std::string& address = server_->address();
    peer_.sin_family = AF_INET;
    peer_.sin_port =
        htons(static_cast<uint16_t>(std::atoi(address.substr(address.rfind(':') + 1).c_str())));
    peer_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  }

  // Sends `bytes` in pieces of at most `piece` bytes.
  void Serve(std::string_view bytes, size_t piece) {
    UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&peer_), sizeof(peer_)) != 0) {
      return;
    }
    const int on = 1;
    ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    while (!bytes.empty()) {
      const std::string_view next = bytes.substr(0, piece);
      (void)!::send(socket.get(), next.data(), next.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      bytes.remove_prefix(next.size());
    }
    ::shutdown(socket.get(), SHUT_WR);
    std::string answer;
    char buffer[4096];
    for (ssize_t n = 1; n > 0;) {
      n = ::recv(socket.get(), buffer, sizeof(buffer), 0);
      if (n > 0) answer.append(buffer, static_cast<size_t>(n));
    }
    BATON_CHECK(
        answer.empty() || answer.starts_with("HTTP/1.1 "), "not an HTTP answer: {}", answer);
  }

 private:
  std::unique_ptr<HttpServer> server_;
  sockaddr_in peer_{};
};

}  // namespace
}  // namespace baton

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static baton::Port small(baton::Options(/*small=*/true));
  static baton::Port usual(baton::Options(/*small=*/false));
  static constexpr std::array<size_t, 4> kPieces = {std::string_view::npos, 1, 7, 64};
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  (data[0] % 2 == 0 ? small : usual).Serve(bytes, kPieces[data[0] / 2 % kPieces.size()]);
  return 0;
}
