#include "common/base/host_port.h"

#include <charconv>

#include <fmt/format.h>

namespace baton {

std::string HostPort::ToString() const {
  const bool ipv6 = host.find(':') != std::string::npos;
  return ipv6 ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

StatusOr<HostPort> ParseHostPort(std::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) {
    return InvalidArgument("address '{}' has no port; it must be host:port", text);
  }
  std::string_view host = text.substr(0, colon);
  const std::string_view port = text.substr(colon + 1);
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return InvalidArgument("address '{}' has an IPv6 host without brackets; write [host]:port",
                           text);
  }
  if (host.empty()) {
    return InvalidArgument("address '{}' has no host; it must be host:port", text);
  }
  HostPort parsed{std::string(host), 0};
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), parsed.port);
  if (error != std::errc() || end != port.data() + port.size() || port.empty()) {
    return InvalidArgument("address '{}' has port '{}'; it must be 0 to 65535", text, port);
  }
  return parsed;
}

std::string HostOfPeer(std::string_view peer) {
  for (const std::string_view scheme : {"ipv4:", "ipv6:"}) {
    if (peer.starts_with(scheme)) peer.remove_prefix(scheme.size());
  }
  const size_t colon = peer.rfind(':');
  const bool brackets = peer.starts_with("[") || peer.starts_with("%5B");
  const bool bare_ipv6 = peer.find(':') != colon && !brackets;
  if (colon != std::string_view::npos && !bare_ipv6) peer = peer.substr(0, colon);
  if (!peer.starts_with("%5B") || !peer.ends_with("%5D")) return std::string(peer);
  constexpr size_t kBracket = 3;  // bytes of "%5B"
  return fmt::format("[{}]", peer.substr(kBracket, peer.size() - 2 * kBracket));
}

}  // namespace baton
