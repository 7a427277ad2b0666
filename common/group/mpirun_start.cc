#include "common/group/mpirun_start.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "common/base/hash.h"
#include "common/collective/mpi_world.h"

namespace baton {
namespace {

// The name of the leader's socket in the abstract namespace (unix(7)), as it is broadcast.
using SocketName = std::array<char, 40>;

struct Address {
  sockaddr_un address{};
  socklen_t size = 0;
};

Status SystemError(std::string_view call) {
  return MakeStatus(StatusCode::kInternal, "start of a group: {}: {}", call, std::strerror(errno));
}

Address AddressOf(const SocketName& name) {
  Address result;
  result.address.sun_family = AF_UNIX;
  const size_t length = ::strnlen(name.data(), name.size());
  std::memcpy(result.address.sun_path + 1, name.data(), length);  // byte 0: abstract
  result.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + length);
  return result;
}

// Opens MPI and checks that it has the configured ranks on one host.
StatusOr<std::unique_ptr<MpiWorld>> OpenWorld(int ranks, Duration limit) {
  MpiOptions options;
  options.all.limit = limit;
  BATON_ASSIGN_OR_RETURN(auto world, OpenMpiWorld(options));
  if (world->size() != ranks) {
    return InvalidArgument(
        "mpirun started {} ranks; engine.tensor_parallel times engine.pipeline_parallel is {}",
        world->size(),
        ranks);
  }
  if (!world->one_host()) {
    return MakeStatus(StatusCode::kUnimplemented,
                      "the ranks of a worker must be on one host; mpirun started them on several");
  }
  return world;
}

// The ranks whose sockets are absent, as text.
std::string Missing(std::span<const std::optional<RankSocket>> sockets) {
  std::string missing;
  for (size_t i = 0; i < sockets.size(); ++i) {
    if (!sockets[i].has_value()) missing += fmt::format("{}{}", missing.empty() ? "" : ", ", i + 1);
  }
  return missing;
}

// Takes one connection, whose first message is the number of the rank.
Status AcceptOne(int listening, std::span<std::optional<RankSocket>> sockets, Duration limit) {
  UniqueFd fd(::accept4(listening, nullptr, nullptr, SOCK_CLOEXEC));
  if (!fd.valid()) return SystemError("accept");
  RankSocket socket(std::move(fd));
  BATON_ASSIGN_OR_RETURN(const RankSocket::Message message, socket.Receive(limit));
  const int rank = std::atoi(message.text.c_str());
  if (rank < 1 || static_cast<size_t>(rank) > sockets.size() || sockets[rank - 1].has_value()) {
    return InvalidArgument("a process joined the group as rank '{}'", message.text.substr(0, 20));
  }
  sockets[rank - 1] = std::move(socket);
  return OkStatus();
}

}  // namespace

StatusOr<std::vector<RankSocket>> AcceptMpirunRanks(int ranks, Duration limit) {
  BATON_ASSIGN_OR_RETURN(const auto world, OpenWorld(ranks, limit));
  const UniqueFd listening(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!listening.valid()) return SystemError("socket");
  SocketName name{};
  fmt::format_to_n(name.data(), name.size() - 1, "baton-group-{:016x}", RandomId());
  const Address address = AddressOf(name);
  if (::bind(listening.get(), reinterpret_cast<const sockaddr*>(&address.address), address.size) !=
          0 ||
      ::listen(listening.get(), ranks) != 0) {
    return SystemError("bind");
  }
  BATON_RETURN_IF_ERROR(
      world->all().BroadcastFromFirst(std::as_writable_bytes(std::span<char>(name))));
  std::vector<std::optional<RankSocket>> sockets(ranks - 1);
  const SteadyClock clock;
  const Time deadline = clock.Now() + limit;
  for (int i = 1; i < ranks; ++i) {
    pollfd waiting{listening.get(), POLLIN, 0};
    const double left = std::clamp(ToMillis(deadline - clock.Now()), 0.0, 1e9);
    if (::poll(&waiting, 1, static_cast<int>(left)) <= 0) {
      return MakeStatus(StatusCode::kDeadlineExceeded,
                        "ranks {} have not come within {:.1f} s",
                        Missing(sockets),
                        ToSeconds(limit));
    }
    BATON_RETURN_IF_ERROR(AcceptOne(listening.get(), sockets, deadline - clock.Now()));
  }
  std::vector<RankSocket> result;
  for (std::optional<RankSocket>& socket : sockets) result.push_back(*std::move(socket));
  return result;
}

StatusOr<RankSocket> ConnectToMpirunLeader(int ranks, Duration limit) {
  BATON_ASSIGN_OR_RETURN(const auto world, OpenWorld(ranks, limit));
  SocketName name{};
  BATON_RETURN_IF_ERROR(
      world->all().BroadcastFromFirst(std::as_writable_bytes(std::span<char>(name))));
  name.back() = '\0';
  UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return SystemError("socket");
  const Address address = AddressOf(name);
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address.address), address.size) != 0) {
    return SystemError("connect");
  }
  RankSocket socket(std::move(fd));
  BATON_RETURN_IF_ERROR(socket.Send(fmt::format("{}", world->rank())));
  return socket;
}

}  // namespace baton
