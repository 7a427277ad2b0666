#include "tests/fuzz/http_fuzz_port.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <utility>

#include "common/base/check.h"
#include "common/base/unique_fd.h"

namespace baton {
namespace {

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

}  // namespace

HttpFuzzPort::HttpFuzzPort(const HttpServerOptions& options, Check check)
    : server_(*HttpServer::Start(options)) {
  const auto checked = [options, check = std::move(check)](const HttpRequest& request) {
    CheckRequest(request, options);
    if (check) check(request);
  };
  server_->AddRoute("POST", "/echo", [checked](const std::shared_ptr<HttpExchange>& exchange) {
    checked(exchange->request());
    exchange->Reply(200, "text/plain", exchange->request().body);
  });
  server_->AddRoute("GET", "/stream", [checked](const std::shared_ptr<HttpExchange>& exchange) {
    checked(exchange->request());
    exchange->Begin(200, "text/event-stream");
    exchange->Write("data: 1\n\n");
    exchange->Finish("");
  });
  server_->AddProbe("/health", [checked](const std::shared_ptr<HttpExchange>& exchange) {
    checked(exchange->request());
    exchange->Reply(200, "text/plain", "ok");
  });
  const std::string& address = server_->address();
  peer_.sin_family = AF_INET;
  peer_.sin_port =
      htons(static_cast<uint16_t>(std::atoi(address.substr(address.rfind(':') + 1).c_str())));
  peer_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
}

std::string HttpFuzzPort::Serve(std::string_view bytes, size_t piece) {
  UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&peer_), sizeof(peer_)) != 0) {
    return "";
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
  return answer;
}

}  // namespace baton
