#include "common/rpc/address.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <charconv>
#include <memory>

#include <fmt/format.h>

namespace baton {
namespace {

constexpr std::string_view kDnsScheme = "dns:///";

}  // namespace

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

StatusOr<std::vector<std::string>> ResolveTarget(std::string_view target) {
  if (target.substr(0, kDnsScheme.size()) != kDnsScheme) {
    BATON_ASSIGN_OR_RETURN(const HostPort plain, ParseHostPort(target));
    return std::vector<std::string>{plain.ToString()};
  }
  BATON_ASSIGN_OR_RETURN(const HostPort name, ParseHostPort(target.substr(kDnsScheme.size())));
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(name.host.c_str(), nullptr, &hints, &found); error != 0) {
    return MakeStatus(StatusCode::kUnavailable,
                      "name '{}' of '{}' cannot be resolved: {}",
                      name.host,
                      target,
                      gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, &freeaddrinfo);
  std::vector<std::string> addresses;
  for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
    char numeric[NI_MAXHOST];
    if (getnameinfo(entry->ai_addr,
                    entry->ai_addrlen,
                    numeric,
                    sizeof(numeric),
                    nullptr,
                    0,
                    NI_NUMERICHOST) == 0) {
      addresses.push_back(HostPort{numeric, name.port}.ToString());
    }
  }
  std::sort(addresses.begin(), addresses.end());
  addresses.erase(std::unique(addresses.begin(), addresses.end()), addresses.end());
  return addresses;
}

}  // namespace baton
