#include "tests/support/raw_http.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdlib>

#include <fmt/format.h>

namespace baton {

RawConnection::RawConnection(const std::string& address, const std::string& source) {
  const size_t colon = address.rfind(':');
  sockaddr_in peer{};
  peer.sin_family = AF_INET;
  peer.sin_port = htons(static_cast<uint16_t>(std::atoi(address.c_str() + colon + 1)));
  if (::inet_pton(AF_INET, address.substr(0, colon).c_str(), &peer.sin_addr) != 1) return;
  sockaddr_in own{};
  own.sin_family = AF_INET;
  if (!source.empty() && ::inet_pton(AF_INET, source.c_str(), &own.sin_addr) != 1) return;
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&own), sizeof(own)) != 0) return;
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&peer), sizeof(peer)) == 0) {
    fd_ = std::move(fd);
  }
}

bool RawConnection::Send(const std::string& bytes) {
  for (size_t sent = 0; sent < bytes.size();) {
    const auto n = ::send(fd_.get(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (n <= 0) return false;
    sent += static_cast<size_t>(n);
  }
  return true;
}

std::optional<bool> RawConnection::ReadSome(Time deadline, std::string& into) {
  const double left = ToMillis(deadline - SteadyClock().Now());
  pollfd waiting{fd_.get(), POLLIN, 0};
  if (::poll(&waiting, 1, static_cast<int>(std::max(left, 0.0))) <= 0) return std::nullopt;
  char buffer[4096];
  const auto n = ::recv(fd_.get(), buffer, sizeof(buffer), 0);
  if (n <= 0) return false;
  into.append(buffer, static_cast<size_t>(n));
  return true;
}

std::string RawConnection::ReadUntil(const std::string& marker, Duration limit) {
  const Time deadline = SteadyClock().Now() + limit;
  std::string text;
  while (text.find(marker) == std::string::npos) {
    if (!ReadSome(deadline, text).value_or(false)) break;
  }
  return text;
}

std::optional<std::string> RawConnection::ReadToEnd(Duration limit) {
  const Time deadline = SteadyClock().Now() + limit;
  std::string text;
  while (true) {
    const auto more = ReadSome(deadline, text);
    if (!more.has_value()) return std::nullopt;
    if (!*more) return text;
  }
}

HttpAnswer HttpSend(const std::string& address, const std::string& request, Duration limit) {
  RawConnection connection(address);
  if (!connection.connected() || !connection.Send(request)) return {};
  const auto text = connection.ReadToEnd(limit);
  if (!text.has_value() || text->rfind("HTTP/1.1 ", 0) != 0) return {};
  const size_t split = text->find("\r\n\r\n");
  if (split == std::string::npos) return {};
  return {std::atoi(text->c_str() + 9), text->substr(0, split), text->substr(split + 4)};
}

HttpAnswer HttpGet(const std::string& address, const std::string& path) {
  return HttpSend(address,
                  fmt::format("GET {} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n", path));
}

std::string PostRequest(const std::string& path,
                        const std::string& body,
                        const std::string& headers) {
  return fmt::format(
      "POST {} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n{}Content-Length: {}\r\n\r\n{}",
      path,
      headers,
      body.size(),
      body);
}

}  // namespace baton
