// The input is what a client sends to an HTTP port. The server must not crash, every answer must be
// an HTTP answer, and no handler may receive a body above the limit.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>

#include "common/base/check.h"
#include "common/base/unique_fd.h"
#include "common/http/http_server.h"

namespace baton {
namespace {

constexpr size_t kMaxBody = 64;

// An HTTP server that serves all inputs of the fuzzer.
class Port final {
 public:
  Port() {
    HttpServerOptions options;
    options.max_header_bytes = 1024;
    options.max_body_bytes = kMaxBody;
    server_ = *HttpServer::Start(options);
    server_->AddRoute("POST", "/echo", [](const std::shared_ptr<HttpExchange>& exchange) {
      const std::string& body = exchange->request().body;
      BATON_CHECK(body.size() <= kMaxBody, "the handler received a body of {} bytes", body.size());
      exchange->Reply(200, "text/plain", body);
    });
    server_->AddRoute("GET", "/stream", [](const std::shared_ptr<HttpExchange>& exchange) {
      exchange->Begin(200, "text/event-stream");
      exchange->Write("data: 1\n\n");
      exchange->Finish();
    });
    const std::string& address = server_->address();
    peer_.sin_family = AF_INET;
    peer_.sin_port =
        htons(static_cast<uint16_t>(std::atoi(address.substr(address.rfind(':') + 1).c_str())));
    peer_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  }

  void Serve(const uint8_t* data, size_t size) {
    UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&peer_), sizeof(peer_)) != 0) {
      return;
    }
    (void)!::send(socket.get(), data, size, MSG_NOSIGNAL | MSG_DONTWAIT);
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
  static baton::Port port;
  port.Serve(data, size);
  return 0;
}
