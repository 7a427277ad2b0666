#include "cli/rank_agent.h"

#include <netdb.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include <nlohmann/json.hpp>

#include "common/app/child_process.h"
#include "common/base/host_port.h"
#include "common/base/json.h"
#include "common/base/unique_fd.h"

namespace baton {
namespace {

constexpr std::string_view kPurpose = "the ranks of a group";
constexpr const char* kDaemon = "orted";
constexpr size_t kMaxMessage = size_t{64} << 10;
// Of the handshake and of a message, once they have begun.
constexpr Duration kMessageLimit = std::chrono::seconds(10);
constexpr Duration kPoll = std::chrono::milliseconds(100);
// A daemon that is told to end, and the ranks that it started, end within this time.
constexpr Duration kEndLimit = std::chrono::seconds(5);

Status SystemError(std::string_view what) {
  return MakeStatus(StatusCode::kUnavailable, "{}: {}", what, std::strerror(errno));
}

// One end of a connection: messages of text after a handshake. Every wait is bounded.
class Connection {
 public:
  explicit Connection(UniqueFd socket) : socket_(std::move(socket)) {}

  int fd() const { return socket_.get(); }

  Status Prove(const PeerProofs& proofs, PeerSide side) {
    const std::unique_ptr<PeerProof> proof = proofs.Make(side, kPurpose);
    if (side == PeerSide::kDialler) BATON_RETURN_IF_ERROR(Write(proof->Begin()));
    while (!proof->done()) {
      BATON_ASSIGN_OR_RETURN(const std::string message, Read(kPeerProofBytes, kMessageLimit));
      BATON_ASSIGN_OR_RETURN(const std::string answer, proof->OnMessage(message));
      BATON_RETURN_IF_ERROR(Write(answer));
    }
    return OkStatus();
  }

  // A message is its length in eight hexadecimal digits, and JSON.
  Status Send(const nlohmann::json& json) {
    const std::string text = json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    return Write(fmt::format("{:08x}{}", text.size(), text));
  }
  StatusOr<nlohmann::json> Receive(Duration limit) {
    BATON_ASSIGN_OR_RETURN(const std::string head, Read(8, limit));
    const size_t bytes = std::strtoul(head.c_str(), nullptr, 16);
    if (bytes > kMaxMessage) {
      return InvalidArgument("a message of {} bytes; at most {} are allowed", bytes, kMaxMessage);
    }
    BATON_ASSIGN_OR_RETURN(const std::string text, Read(bytes, kMessageLimit));
    return ParseJson("a message about ranks", text);
  }

 private:
  Status Write(std::string_view bytes) {
    const Time deadline = SteadyClock().Now() + kMessageLimit;
    while (!bytes.empty()) {
      BATON_RETURN_IF_ERROR(Await(POLLOUT, deadline));
      const auto sent = ::send(fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent < 0 && errno != EAGAIN) return SystemError("the connection to the other host");
      bytes.remove_prefix(sent > 0 ? static_cast<size_t>(sent) : 0);
    }
    return OkStatus();
  }
  StatusOr<std::string> Read(size_t bytes, Duration limit) {
    const Time deadline = SteadyClock().Now() + limit;
    std::string text(bytes, '\0');
    for (size_t at = 0; at < bytes;) {
      BATON_RETURN_IF_ERROR(Await(POLLIN, deadline));
      const auto got = ::recv(fd(), text.data() + at, bytes - at, MSG_DONTWAIT);
      if (got == 0) {
        return MakeStatus(StatusCode::kUnavailable, "the other host has closed the connection");
      }
      if (got < 0 && errno != EAGAIN) return SystemError("the connection to the other host");
      at += got > 0 ? static_cast<size_t>(got) : 0;
    }
    return text;
  }
  Status Await(short event, Time deadline) const {
    pollfd waiting{fd(), event, 0};
    const double left = std::clamp(ToMillis(deadline - SteadyClock().Now()), 0.0, 1e9);
    if (::poll(&waiting, 1, static_cast<int>(left)) > 0) return OkStatus();
    return MakeStatus(StatusCode::kDeadlineExceeded, "the other host does not answer");
  }

  const UniqueFd socket_;
};

// The first address of `text` with which `use` succeeds.
StatusOr<UniqueFd> OpenSocket(const std::string& text,
                              int flags,
                              const std::function<bool(int, const addrinfo&)>& use) {
  BATON_ASSIGN_OR_RETURN(const HostPort address, ParseHostPort(text));
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* found = nullptr;
  const int code =
      ::getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &found);
  if (code != 0) return MakeStatus(StatusCode::kUnavailable, "{}: {}", text, ::gai_strerror(code));
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> addresses(found, &::freeaddrinfo);
  for (const addrinfo* one = found; one != nullptr; one = one->ai_next) {
    UniqueFd socket(::socket(one->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (socket.valid() && use(socket.get(), *one)) return socket;
  }
  return SystemError(text);
}

// The address that `socket` listens on, with the port that the system chose.
std::string ListeningAddress(int socket, const std::string& listen) {
  sockaddr_storage own{};
  socklen_t length = sizeof(own);
  std::array<char, 16> port{};
  auto* const address = reinterpret_cast<sockaddr*>(&own);
  if (::getsockname(socket, address, &length) != 0 ||
      ::getnameinfo(address, length, nullptr, 0, port.data(), port.size(), NI_NUMERICSERV) != 0) {
    return listen;
  }
  return fmt::format("{}:{}", listen.substr(0, listen.rfind(':')), port.data());
}

// The words as a shell would pass them: without space around them, and without double quotes.
StatusOr<std::vector<std::string>> DaemonCommand(const nlohmann::json& message) {
  std::vector<std::string> words;
  if (message.is_object() && message.contains("command") && message["command"].is_array()) {
    for (const nlohmann::json& word : message["command"]) {
      std::string text = word.is_string() ? word.get<std::string>() : "";
      text.erase(0, std::min(text.find_first_not_of(' '), text.size()));
      if (text.size() >= 2 && text.front() == '"' && text.back() == '"') {
        text = text.substr(1, text.size() - 2);
      }
      words.push_back(std::move(text));
    }
  }
  if (words.empty() || std::filesystem::path(words.front()).filename() != kDaemon) {
    return InvalidArgument("the command '{}' is not {}; an agent runs nothing else",
                           words.empty() ? "" : words.front().substr(0, 100),
                           kDaemon);
  }
  for (const char* folder : {"/usr/bin", "/usr/local/bin"}) {
    const std::string path = fmt::format("{}/{}", folder, kDaemon);
    if (::access(path.c_str(), X_OK) != 0) continue;
    words.front() = path;
    return words;
  }
  return MakeStatus(StatusCode::kNotFound,
                    "{} is missing on this host: install the Debian package openmpi-bin",
                    kDaemon);
}

// Runs the daemon that the connection asks for, until one of them ends. Returns its exit status.
StatusOr<int> RunDaemon(Connection& connection) {
  BATON_ASSIGN_OR_RETURN(const nlohmann::json message, connection.Receive(kMessageLimit));
  BATON_ASSIGN_OR_RETURN(const std::vector<std::string> command, DaemonCommand(message));
  BATON_ASSIGN_OR_RETURN(const auto daemon, ChildProcess::Start({command, ""}));
  while (true) {
    if (const auto status = daemon->WaitExit(kPoll)) return *status;
    pollfd closed{connection.fd(), POLLIN | POLLRDHUP, 0};
    if (::poll(&closed, 1, 0) <= 0) continue;
    // The daemon ends its ranks.
    daemon->Signal(SIGTERM);
    (void)daemon->WaitExit(kEndLimit);
    return MakeStatus(StatusCode::kUnavailable, "mpirun's connection has ended");
  }
}

nlohmann::json AnswerOf(const StatusOr<int>& ended) {
  if (ended.ok()) return {{"status", *ended}};
  return {{"error", std::string(Message(ended.status()))},
          {"code", static_cast<int>(ended.status().code())}};
}

StatusOr<UniqueFd> Dial(const std::string& address, Duration limit) {
  const Time deadline = SteadyClock().Now() + limit;
  while (true) {
    auto socket = OpenSocket(address, 0, [](int fd, const addrinfo& to) {
      return ::connect(fd, to.ai_addr, to.ai_addrlen) == 0;
    });
    if (socket.ok() || socket.status().code() == StatusCode::kInvalidArgument) return socket;
    if (SteadyClock().Now() >= deadline) {
      return MakeStatus(StatusCode::kDeadlineExceeded,
                        "no agent has come within {:.0f} s: {}",
                        ToSeconds(limit),
                        Message(socket.status()));
    }
    std::this_thread::sleep_for(kPoll);
  }
}

}  // namespace

Status ServeRanks(const std::string& listen,
                  const PeerProofs& proofs,
                  const std::function<void(const std::string& address)>& ready,
                  const std::function<bool()>& stopped) {
  BATON_ASSIGN_OR_RETURN(
      const UniqueFd listening, OpenSocket(listen, AI_PASSIVE, [](int fd, const addrinfo& at) {
        const int one = 1;
        ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
        return ::bind(fd, at.ai_addr, at.ai_addrlen) == 0 && ::listen(fd, 4) == 0;
      }));
  ready(ListeningAddress(listening.get(), listen));
  while (!stopped()) {
    pollfd waiting{listening.get(), POLLIN, 0};
    if (::poll(&waiting, 1, static_cast<int>(ToMillis(kPoll))) <= 0) continue;
    UniqueFd accepted(::accept4(listening.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!accepted.valid()) continue;
    Connection connection(std::move(accepted));
    if (const Status proven = connection.Prove(proofs, PeerSide::kListener); !proven.ok()) {
      proofs.OnRefused(kPurpose, "a connection", proven);
      continue;
    }
    (void)connection.Send(AnswerOf(RunDaemon(connection)));
  }
  return OkStatus();
}

StatusOr<int> RunOnHost(const std::string& address,
                        const PeerProofs& proofs,
                        const std::vector<std::string>& command,
                        Duration limit) {
  BATON_ASSIGN_OR_RETURN(UniqueFd socket, Dial(address, limit));
  Connection connection(std::move(socket));
  BATON_RETURN_IF_ERROR(connection.Prove(proofs, PeerSide::kDialler));
  BATON_RETURN_IF_ERROR(connection.Send({{"command", command}}));
  // As long as the worker runs.
  constexpr Duration kForEver = std::chrono::hours(24 * 365);
  StatusOr<nlohmann::json> answer = Status(StatusCode::kDeadlineExceeded, "");
  while (answer.status().code() == StatusCode::kDeadlineExceeded) {
    answer = connection.Receive(kForEver);
  }
  BATON_RETURN_IF_ERROR(answer.status());
  if (answer->is_object() && answer->contains("status")) return answer->value("status", 1);
  return Status(static_cast<StatusCode>(answer->value("code", 13)),
                answer->value("error", "the agent gives no reason"));
}

}  // namespace baton
