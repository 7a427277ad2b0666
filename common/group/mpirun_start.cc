#include "common/group/mpirun_start.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "common/base/hash.h"
#include "common/base/local_socket.h"
#include "common/collective/mpi_world.h"

namespace baton {
namespace {

// The name of the leader's socket in the abstract namespace (unix(7)), as it is broadcast.
using SocketName = std::array<char, 40>;

Status SystemError(std::string_view call) {
  return MakeStatus(StatusCode::kInternal, "start of a group: {}: {}", call, std::strerror(errno));
}

std::string_view TextOf(const SocketName& name) {
  return {name.data(), ::strnlen(name.data(), name.size())};
}

// Ranks send and receive with waits of their own.
Status LetBlock(const UniqueFd& socket) {
  const int flags = ::fcntl(socket.get(), F_GETFL);
  if (flags < 0 || ::fcntl(socket.get(), F_SETFL, flags & ~O_NONBLOCK) != 0) {
    return SystemError("fcntl");
  }
  return OkStatus();
}

// Opens MPI and checks that it has the configured ranks.
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
  return world;
}

bool IsWithLeader(const MpiWorld& world, int rank) {
  return world.first_on_host()[rank] == 0;
}

bool IsOnOneHost(const MpiWorld& world) {
  return std::ranges::count(world.first_on_host(), 0) == world.size();
}

// Where the first rank of a host has the memory that the ranks of this host share.
struct MemoryPlace {
  pid_t process = 0;
  int descriptor = -1;
};

// Tells all ranks the place of `own`, which only the first rank of a host other than the leader's
// has, and returns the places by rank.
StatusOr<std::vector<MemoryPlace>> ShareMemoryPlaces(MpiWorld& world, const GroupMemory* own) {
  std::vector<MemoryPlace> places(world.size());
  if (own != nullptr) places[world.rank()] = {::getpid(), own->fd()};
  std::vector<size_t> ends;
  for (int i = 1; i <= world.size(); ++i) ends.push_back(i * sizeof(MemoryPlace));
  const CollectiveRows rows = {std::as_writable_bytes(std::span(places)).data(), 1, ends.back()};
  BATON_RETURN_IF_ERROR(world.all().AllGather(rows, ends));
  return places;
}

// The ranks of the leader's host whose sockets are absent, as text.
std::string Missing(const MpiWorld& world, std::span<const std::optional<RankSocket>> sockets) {
  std::vector<int> missing;
  for (int rank = 1; rank < world.size(); ++rank) {
    if (IsWithLeader(world, rank) && !sockets[rank - 1].has_value()) missing.push_back(rank);
  }
  return fmt::format("{}", fmt::join(missing, ", "));
}

// Takes one connection, whose first message is the number of the rank.
Status AcceptOne(int listening, std::span<std::optional<RankSocket>> sockets, Duration limit) {
  UniqueFd fd(::accept4(listening, nullptr, nullptr, SOCK_CLOEXEC));
  if (!fd.valid()) return SystemError("accept");
  BATON_RETURN_IF_ERROR(LocalPeer(fd).status());
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

StatusOr<MpirunLeader> AcceptMpirunRanks(
    const GroupShape& shape,
    Duration limit,
    const std::function<void(const std::string& ranks, Duration waited)>& tell) {
  MpirunLeader group;
  BATON_ASSIGN_OR_RETURN(group.world, OpenWorld(shape.ranks(), limit));
  MpiWorld& world = *group.world;
  SocketName name{};
  fmt::format_to_n(name.data(), name.size() - 1, "baton-group-{:016x}", RandomId());
  BATON_ASSIGN_OR_RETURN(const UniqueFd listening, ListenLocal(TextOf(name), SOCK_SEQPACKET));
  BATON_RETURN_IF_ERROR(
      world.all().BroadcastFromFirst(std::as_writable_bytes(std::span<char>(name))));
  BATON_RETURN_IF_ERROR(ShareMemoryPlaces(world, nullptr).status());
  group.sockets.resize(shape.ranks() - 1);
  const SteadyClock clock;
  const Time began = clock.Now();
  const Time deadline = began + limit;
  const auto here = std::ranges::count(world.first_on_host(), 0);
  for (int i = 1; i < here; ++i) {
    pollfd waiting{listening.get(), POLLIN, 0};
    bool has_come = false;
    while (!has_come && clock.Now() < deadline) {
      const Time now = clock.Now();
      const Duration part = std::min(deadline - now, UntilWaitIsTold(now - began));
      has_come = ::poll(&waiting, 1, static_cast<int>(ToMillis(part)) + 1) > 0;
      if (!has_come) tell(Missing(world, group.sockets), clock.Now() - began);
    }
    if (!has_come) {
      return MakeStatus(StatusCode::kDeadlineExceeded,
                        "ranks {} have not come within {:.1f} s",
                        Missing(world, group.sockets),
                        ToSeconds(limit));
    }
    BATON_RETURN_IF_ERROR(AcceptOne(listening.get(), group.sockets, deadline - clock.Now()));
  }
  if (IsOnOneHost(world)) group.world.reset();
  return group;
}

StatusOr<MpirunFollower> ConnectToMpirunLeader(const GroupShape& shape, Duration limit) {
  MpirunFollower group;
  BATON_ASSIGN_OR_RETURN(group.world, OpenWorld(shape.ranks(), limit));
  MpiWorld& world = *group.world;
  const int rank = world.rank();
  SocketName name{};
  BATON_RETURN_IF_ERROR(
      world.all().BroadcastFromFirst(std::as_writable_bytes(std::span<char>(name))));
  const int first = world.first_on_host()[rank];
  if (first == rank) {
    BATON_ASSIGN_OR_RETURN(group.memory, GroupMemory::Create(shape.layout()));
  }
  BATON_ASSIGN_OR_RETURN(const std::vector<MemoryPlace> places,
                         ShareMemoryPlaces(world, group.memory.get()));
  if (IsWithLeader(world, rank)) {
    BATON_ASSIGN_OR_RETURN(UniqueFd fd, ConnectLocal(TextOf(name), SOCK_SEQPACKET));
    BATON_RETURN_IF_ERROR(LetBlock(fd));
    group.leader.emplace(std::move(fd));
    BATON_RETURN_IF_ERROR(group.leader->Send(fmt::format("{}", rank)));
  } else if (first != rank) {
    const MemoryPlace& place = places[first];
    BATON_ASSIGN_OR_RETURN(group.memory,
                           GroupMemory::OpenOf(place.process, place.descriptor, shape.layout()));
  }
  if (IsOnOneHost(world)) group.world.reset();
  return group;
}

}  // namespace baton
