#include "common/rpc/connection_relay.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <random>
#include <utility>

#include <fmt/format.h>

namespace baton {
namespace {

constexpr int kReadsInTurn = 16;  // then it is the turn of other connections
// The longest that a connection stays open for a client that has not read all.
constexpr Duration kLeaveLimit = std::chrono::seconds(1);
constexpr Duration kUnreadLimit = std::chrono::seconds(10);
// How long updates of windows wait for the next bytes of their direction.
constexpr Duration kHoldLimit = std::chrono::milliseconds(200);
// The most bytes that are still read of a client that is to learn why its connection ends.
constexpr size_t kMaxDiscarded = size_t{256} << 10;
constexpr uint32_t kEnhanceYourCalm = 11;  // RFC 9113, section 7

bool MayRetry() {
  return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

// Others cannot guess the name, and so cannot take it first.
std::string NewName() {
  static const uint64_t secret = uint64_t{std::random_device()()} << 32 | std::random_device()();
  static std::atomic<uint64_t> last{0};
  return fmt::format("baton-{}-{:016x}-{}", ::getpid(), secret, ++last);
}

uint32_t Events(bool reads, bool writes) {
  return (reads ? uint32_t{EPOLLIN} : 0) | (writes ? uint32_t{EPOLLOUT} : 0);
}

std::string BigEndian(uint32_t value, int bytes) {
  std::string text;
  for (int at = bytes - 1; at >= 0; --at) text += static_cast<char>(value >> (8 * at));
  return text;
}

// A GOAWAY frame (RFC 9113, section 6.8) that says why.
std::string GoAway(std::string_view why) {
  constexpr uint32_t kLastStream = 0x7fffffff;
  return BigEndian(static_cast<uint32_t>(8 + why.size()), 3) +
         static_cast<char>(FrameHead::kGoAway) + BigEndian(0, 1) + BigEndian(0, 4) +
         BigEndian(kLastStream, 4) + BigEndian(kEnhanceYourCalm, 4) + std::string(why);
}

}  // namespace

LocalPair LocalPair::Make() {
  int ends[2] = {-1, -1};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) != 0) return {};
  LocalPair pair{UniqueFd(ends[0]), UniqueFd(ends[1]), NewName()};
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, pair.name.data(), pair.name.size());
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + pair.name.size());
  if (::bind(ends[0], reinterpret_cast<const sockaddr*>(&address), size) != 0) return {};
  return pair;
}

ConnectionRelay::ConnectionRelay(std::unique_ptr<ClientSocket> client,
                                 LocalPair pair,
                                 std::string address,
                                 Port& port,
                                 Time deadline)
    : client_(std::move(client)),
      pair_(std::move(pair)),
      address_(std::move(address)),
      port_(port),
      deadline_(deadline) {
  if (!client_->is_encrypted()) Open();
}

ConnectionRelay::~ConnectionRelay() {
  if (started_) ForgetClient(pair_.name);
}

void ConnectionRelay::OnEvents(Side side, uint32_t events, Time now) {
  if (over()) return;
  const bool broken = (events & (EPOLLERR | EPOLLHUP)) != 0;
  const bool goes_on = std::exchange(has_more_, false) || phase_ == Phase::kHandshake;
  const bool client = side == Side::kClient;
  const bool up =
      goes_on || client_->wants_write() || (events & (client ? EPOLLIN : EPOLLOUT)) != 0;
  const bool down =
      goes_on || grpc_ended_ || broken || (events & (client ? EPOLLOUT : EPOLLIN)) != 0;
  if (phase_ == Phase::kHandshake) Handshake(now);
  if (phase_ == Phase::kOpen && !gate_->failure().empty()) Refuse(now);
  if (client && broken) phase_ = Phase::kOver;
  if (!client && broken && !grpc_ended_) {
    grpc_ended_ = true;
    deadline_ = now + kUnreadLimit;
  }
  if (phase_ == Phase::kOpen && up) PumpUp(now);
  if (phase_ == Phase::kOpen && down && started_) PumpDown(now);
  if (phase_ == Phase::kLeaving) SendRest();
  if (phase_ == Phase::kLeaving) DiscardInput();
}

void ConnectionRelay::OnDeadline(Time now) {
  if (deadline_ <= now) return Drop();
  held_until_ = kNever;
  if (phase_ != Phase::kOpen) return;
  ReleaseUp();
  ReleaseDown();
}

void ConnectionRelay::Finish(Time now) {
  if (phase_ == Phase::kOpen && started_) PumpDown(now);
  if (phase_ == Phase::kOpen || phase_ == Phase::kHandshake) Leave(now);
  if (phase_ == Phase::kLeaving && down_.empty()) phase_ = Phase::kOver;
}

std::optional<uint32_t> ConnectionRelay::interest(Side side) const {
  if (side == Side::kGrpc) {
    if (!started_ || grpc_ended_ || phase_ != Phase::kOpen) return std::nullopt;
    return Events(down_.empty(), !up_.empty());
  }
  const bool writes = !down_.empty() || client_->wants_write();
  const bool reads = !client_ended_ && !(phase_ == Phase::kOpen && started_ && !up_.empty());
  return Events(reads, writes);
}

void ConnectionRelay::Handshake(Time now) {
  const ClientSocket::State state = client_->Handshake();
  if (state == ClientSocket::State::kBlocked) return;
  if (state != ClientSocket::State::kDone) {
    // The client is to read the alert, so its bytes must not be left unread.
    return Leave(now);
  }
  Open();
}

void ConnectionRelay::Open() {
  phase_ = Phase::kOpen;
  identity_ = std::make_shared<RemoteClient>(address_, client_->certificate_name());
  if (!identity_->certificate().empty()) identity_->SetProven();
  gate_.emplace(*identity_, port_.strangers, [this] { ::shutdown(client_->fd(), SHUT_RDWR); });
}

void ConnectionRelay::Start() {
  started_ = true;
  RememberClient(pair_.name, identity_);
  port_.take(std::move(pair_.grpc));
}

void ConnectionRelay::PumpUp(Time now) {
  if (started_ && !FlushUp()) return;
  for (int reads = 0; !client_ended_; ++reads) {
    if (reads == kReadsInTurn) {
      has_more_ = true;
      return;
    }
    const ClientSocket::Result got = client_->Read(port_.buffer);
    if (got.state == ClientSocket::State::kBlocked) return;
    if (got.state == ClientSocket::State::kFailed) {
      phase_ = Phase::kOver;
      return;
    }
    if (got.state == ClientSocket::State::kEnded) {
      client_ended_ = true;
      if (!started_) phase_ = Phase::kOver;
      ReleaseUp();
      if (started_) ::shutdown(pair_.relay.get(), SHUT_WR);
      return;
    }
    const std::string_view bytes(port_.buffer.data(), got.bytes);
    gate_->FromClient(bytes, now);
    if (!gate_->failure().empty()) return Refuse(now);
    if (!started_ && gate_->greeted()) {
      Start();
      deadline_ = kNever;
      if (!FlushUp() && over()) return;
    }
    if (started_ && gate_->client_bytes_may_wait(bytes.size())) {
      Hold(held_up_, bytes, now);
    } else {
      ReleaseUp(bytes);
    }
    if (over() || (started_ && !up_.empty())) return;
    if (got.bytes < port_.buffer.size() && !client_->has_buffered_bytes()) return;
  }
}

void ConnectionRelay::PumpDown(Time now) {
  if (!FlushDown()) return;
  for (int reads = 0;; ++reads) {
    if (reads == kReadsInTurn) {
      has_more_ = true;
      return;
    }
    const ssize_t got =
        ::recv(pair_.relay.get(), port_.buffer.data(), port_.buffer.size(), MSG_DONTWAIT);
    if (got < 0 && MayRetry()) return;
    if (got <= 0) return Leave(now);
    const std::string_view bytes(port_.buffer.data(), static_cast<size_t>(got));
    gate_->FromServer(bytes, now);
    if (gate_->server_bytes_may_wait(bytes.size())) {
      Hold(held_down_, bytes, now);
    } else {
      ReleaseDown(bytes);
    }
    if (over() || !down_.empty()) return;
    if (!gate_->failure().empty()) return Refuse(now);
    if (bytes.size() < port_.buffer.size() && !grpc_ended_) return;
  }
}

bool ConnectionRelay::FlushUp() {
  if (up_.empty()) return true;
  const std::string waiting = std::exchange(up_, {});
  PassUp(waiting);
  return up_.empty() && !over();
}

bool ConnectionRelay::FlushDown() {
  if (down_.empty()) return true;
  const std::string waiting = std::exchange(down_, {});
  PassDown(waiting);
  return down_.empty() && !over();
}

void ConnectionRelay::PassUp(std::string_view bytes) {
  while (started_ && up_.empty() && !bytes.empty()) {
    const ssize_t sent =
        ::send(pair_.relay.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && MayRetry()) break;
    if (sent < 0) return;  // gRPC has closed its end, and PumpDown will notice
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  up_.append(bytes);
}

void ConnectionRelay::PassDown(std::string_view bytes) {
  while (down_.empty() && !bytes.empty()) {
    const ClientSocket::Result sent = client_->Write(bytes);
    if (sent.state == ClientSocket::State::kBlocked) break;
    if (sent.state != ClientSocket::State::kDone) {
      phase_ = Phase::kOver;
      return;
    }
    bytes.remove_prefix(sent.bytes);
  }
  down_.append(bytes);
}

void ConnectionRelay::Hold(std::string& held, std::string_view bytes, Time now) {
  held.append(bytes);
  held_until_ = std::min(held_until_, now + kHoldLimit);
}

void ConnectionRelay::ReleaseUp(std::string_view next) {
  if (held_up_.empty()) return PassUp(next);
  const std::string all = std::exchange(held_up_, {}).append(next);
  PassUp(all);
}

void ConnectionRelay::ReleaseDown(std::string_view next) {
  if (held_down_.empty()) return PassDown(next);
  const std::string all = std::exchange(held_down_, {}).append(next);
  PassDown(all);
}

void ConnectionRelay::Refuse(Time now) {
  if (started_ && gate_->at_server_border()) PassDown(GoAway(gate_->failure()));
  if (!over()) Leave(now);
}

void ConnectionRelay::Leave(Time now) {
  const bool refused = !started_ || !gate_->failure().empty();
  phase_ = Phase::kLeaving;
  up_.clear();
  pair_.relay.Reset();
  pair_.grpc.Reset();
  SendRest();
  held_until_ = kNever;
  deadline_ = now + (refused || down_.empty() ? kLeaveLimit : kUnreadLimit);
}

void ConnectionRelay::SendRest() {
  if (!FlushDown()) return;
  if (!std::exchange(writing_ended_, true)) client_->EndWriting();
  if (client_ended_) phase_ = Phase::kOver;
}

// A socket that is closed with unread bytes takes back what the client has not read.
void ConnectionRelay::DiscardInput() {
  for (int reads = 0; reads < kReadsInTurn; ++reads) {
    const ssize_t got =
        ::recv(client_->fd(), port_.buffer.data(), port_.buffer.size(), MSG_DONTWAIT);
    if (got < 0 && MayRetry()) return;
    if (got > 0) discarded_ += static_cast<size_t>(got);
    if (got <= 0 || discarded_ > kMaxDiscarded) {
      phase_ = Phase::kOver;
      return;
    }
  }
}

}  // namespace baton
