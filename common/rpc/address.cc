#include "common/rpc/address.h"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <memory>

namespace baton {
namespace {

constexpr std::string_view kDnsScheme = "dns:///";

}  // namespace

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
