#include "kvtransfer/one_sided/receiver.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "kvtransfer/loop/epoll.h"
#include "kvtransfer/wire/frame.h"

namespace baton {
namespace {

// The most reports of one peer that may wait for bytes to land: a copy for each operation that a
// channel can have, and as many windows that are given back and asked for.
constexpr size_t kMaxReports = 3 * kMaxOutstandingOps;

void Watch(int epoll_fd, int fd, uint32_t events) {
  const Status watched = WatchFd(epoll_fd, fd, events);
  BATON_CHECK(watched.ok(), "{}", Message(watched));
}

}  // namespace

OneSidedReceiver::OneSidedReceiver(WindowTable& windows,
                                   std::unique_ptr<DmaQueue> checksums,
                                   Options options)
    : windows_(windows),
      options_(std::move(options)),
      grants_(options_.fence_timeout),
      checksums_(std::move(checksums)) {
  Watch(options_.epoll_fd, checksums_->wait_fd(), EPOLLIN);
}

std::unique_ptr<PeerConnection> OneSidedReceiver::Add(std::unique_ptr<FrameSocket> socket,
                                                      std::unique_ptr<RemoteAccess> access,
                                                      Time now) {
  const uint64_t id = next_peer_++;
  std::string name = access->peer();
  peers_[id].access = std::move(access);
  return std::make_unique<OneSidedConnection>(std::move(socket), std::move(name), id, *this, now);
}

void OneSidedReceiver::OnConnected(uint64_t peer, OneSidedConnection* connection) {
  peers_.at(peer).connection = connection;
}

void OneSidedReceiver::OnGone(uint64_t id, bool drained) {
  Peer& peer = peers_.at(id);
  peer.connection = nullptr;
  peer.reports.clear();
  if (drained || !grants_.holds_any(id) || peer.access->Revoke()) {
    peers_.erase(id);
    grants_.OnDrained(id);
    return ReportClosed();
  }
  if (options_.log) {
    options_.log(
        fmt::format("the KV data connection of {0} closed, but {0} may still write until it ends",
                    peer.access->peer()));
  }
  WatchAccess(peer);
}

void OneSidedReceiver::WatchAccess(Peer& peer) const {
  if (std::exchange(peer.is_watched, true)) return;
  Watch(options_.epoll_fd, peer.access->wait_fd(), EPOLLIN | EPOLLET);
}

Status OneSidedReceiver::OnReport(uint64_t id, SidebandFrame frame) {
  Peer& peer = peers_.at(id);
  if (peer.reports.size() >= kMaxReports) {
    return InvalidArgument("the peer reports more than {} copies whose bytes do not land",
                           peer.reports.size());
  }
  progress_.OnProgress();
  peer.reports.push_back(std::move(frame));
  TakeReports(id, peer);
  return OkStatus();
}

void OneSidedReceiver::TakeReports(uint64_t id, Peer& peer) {
  for (; !peer.reports.empty(); peer.reports.pop_front()) {
    SidebandFrame& frame = peer.reports.front();
    if (frame.header.type == SidebandType::kDrained) {
      grants_.OnDrained(id, frame.header.key);
      ReportClosed();
      continue;
    }
    if (frame.header.type == SidebandType::kAsk) {
      peer.connection->AnswerAsk(frame.header.key);
      continue;
    }
    if (!peer.access->HasLanded(frame.header.code)) return WatchAccess(peer);
    progress_.OnProgress();
    const Status counts = OnLanded(id, peer, frame.header, std::move(frame.ranges));
    if (!counts.ok()) peer.connection->Acknowledge(frame.header.op, counts);
  }
}

StatusOr<std::string> OneSidedReceiver::OpenAccess(uint64_t peer,
                                                   uint32_t region,
                                                   std::string_view greeting) {
  const WindowTable::Memory* memory = windows_.Find(region);
  if (memory == nullptr) {
    return InvalidArgument("the peer wants to write region {}, which is unknown", region);
  }
  peers_.at(peer).region = region;
  return peers_.at(peer).access->Open(*memory->buffer, greeting);
}

const WriteWindow* OneSidedReceiver::Give(uint64_t peer, uint64_t key, uint32_t region) {
  const WriteWindow* window = windows_.FindWindow(key);
  if (window == nullptr || window->region != region) return nullptr;
  grants_.Give(peer, key);
  progress_.OnProgress();
  return window;
}

Status OneSidedReceiver::OnLanded(uint64_t id,
                                  const Peer& peer,
                                  const SidebandHeader& header,
                                  std::vector<ByteRange> ranges) {
  if (!grants_.holds(id, header.key)) {
    return MakeStatus(StatusCode::kNotFound, "the peer was not given such a write window");
  }
  Status allowed = windows_.CheckWrite(header.key, peer.region, ranges);
  if (!allowed.ok()) {
    const bool outside = allowed.code() == StatusCode::kPermissionDenied;
    if (outside && options_.log) {
      options_.log(fmt::format(
          "{} wrote into memory that it was not given: {}", peer.access->peer(), Message(allowed)));
    }
    return allowed;
  }
  Landed landed;
  landed.peer = id;
  landed.op = header.op;
  landed.arrival.window_key = header.key;
  landed.arrival.region = peer.region;
  landed.arrival.tag = header.tag;
  landed.arrival.bytes = header.bytes;
  landed.arrival.ranges = std::move(ranges);
  if (header.granule == 0) {
    Count(std::move(landed), OkStatus());
    return OkStatus();
  }
  const uint64_t sum = next_sum_++;
  BATON_RETURN_IF_ERROR(checksums_->Checksum(
      sum, *windows_.Find(peer.region)->buffer, landed.arrival.ranges, header.granule));
  summing_[sum] = std::move(landed);
  return OkStatus();
}

bool OneSidedReceiver::is_behind() const {
  return windows_.is_behind();
}

void OneSidedReceiver::OnNote(uint64_t peer, uint32_t region, const SidebandFrame& frame) {
  const uint64_t key = frame.header.key;
  if (!grants_.holds(peer, key) || windows_.FindWindow(key) == nullptr) return;
  Arrival note;
  note.kind = Arrival::Kind::kNote;
  note.window_key = key;
  note.region = region;
  note.note = frame.text;
  windows_.Report(std::move(note));
}

void OneSidedReceiver::Count(Landed landed, const Status& status) {
  Status verdict = status;
  if (verdict.ok() && windows_.FindWindow(landed.arrival.window_key) == nullptr) {
    verdict = MakeStatus(StatusCode::kAborted, "the write window was closed");
  }
  if (verdict.ok()) windows_.Report(std::move(landed.arrival));
  const auto peer = peers_.find(landed.peer);
  if (peer == peers_.end() || peer->second.connection == nullptr) return;
  peer->second.connection->Acknowledge(landed.op, verdict);
}

bool OneSidedReceiver::CloseWindow(uint64_t key) {
  const WriteWindow* window = windows_.FindWindow(key);
  if (window == nullptr) return false;
  const uint32_t region = window->region;
  windows_.Remove(key);
  grants_.Close(key, region);
  ReportClosed();
  return true;
}

void OneSidedReceiver::TakeChecksums() {
  std::array<DmaDone, 16> done;
  size_t count = 0;
  do {
    count = checksums_->Poll(done);
    for (DmaDone& end : std::span(done).first(count)) {
      auto node = summing_.extract(end.id);
      node.mapped().arrival.checksums = std::move(end.checksums);
      Count(std::move(node.mapped()), end.status);
    }
  } while (count == done.size());
}

void OneSidedReceiver::TakeRevoked() {
  std::vector<uint64_t> revoked;
  for (const auto& [id, peer] : peers_) {
    if (peer.connection == nullptr && peer.access->Revoke()) revoked.push_back(id);
  }
  for (const uint64_t id : revoked) {
    peers_.erase(id);
    grants_.OnDrained(id);
  }
}

void OneSidedReceiver::RevokeOverdue(Time now, FrameServer& server) {
  for (const uint64_t id : grants_.Overdue(now)) {
    Peer& peer = peers_.at(id);
    if (!peer.access->Revoke()) continue;
    peer.reports.clear();
    grants_.OnDrained(id);
    if (peer.connection == nullptr) continue;
    peer.connection->Break(MakeStatus(StatusCode::kAborted,
                                      "{} did not confirm a close within {:.3f} s, so its access "
                                      "was revoked",
                                      peer.access->peer(),
                                      ToSeconds(options_.fence_timeout)));
    server.Refresh(peer.connection->fd());
  }
}

bool OneSidedReceiver::Poll(Time now, FrameServer& server) {
  const bool wants_poll = progress_.IsRecent(now) && options_.busy_polls;
  TakeChecksums();
  for (auto& [id, peer] : peers_) {
    if (peer.connection == nullptr) continue;
    const bool had_reports = !peer.reports.empty();
    TakeReports(id, peer);
    if (peer.connection->SendAnswers() || had_reports) server.Refresh(peer.connection->fd());
  }
  TakeRevoked();
  RevokeOverdue(now, server);
  grants_.OnTime(now);
  ReportClosed();
  if (!wants_poll) checksums_->WatchEnds();
  return wants_poll;
}

bool OneSidedReceiver::is_closing() const {
  return grants_.is_closing() || !closed_.empty();
}

bool OneSidedReceiver::IsSummed(uint64_t key) const {
  return std::ranges::any_of(
      summing_, [&](const auto& entry) { return entry.second.arrival.window_key == key; });
}

void OneSidedReceiver::ReportClosed() {
  for (Arrival& arrival : grants_.TakeArrivals()) closed_.push_back(std::move(arrival));
  std::vector<Arrival> summed;
  for (Arrival& arrival : std::exchange(closed_, {})) {
    const bool waits = arrival.kind == Arrival::Kind::kClosed && IsSummed(arrival.window_key);
    if (waits) {
      summed.push_back(std::move(arrival));
    } else {
      windows_.Report(std::move(arrival));
    }
  }
  closed_ = std::move(summed);
}

}  // namespace baton
