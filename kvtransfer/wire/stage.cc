#include "kvtransfer/wire/stage.h"

#include <poll.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "common/base/clock.h"

namespace baton {
namespace {

constexpr Duration kLongestCopy = std::chrono::seconds(5);
constexpr int kPollMs = 10;

}  // namespace

StatusOr<std::unique_ptr<Stage>> Stage::Create(Dma& dma, const Buffer& memory, int epoll_fd) {
  BATON_ASSIGN_OR_RETURN(auto queue, dma.MakeQueue());
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = queue->wait_fd();
  if (::epoll_ctl(epoll_fd, EPOLL_CTL_ADD, queue->wait_fd(), &event) != 0) {
    return MakeStatus(StatusCode::kResourceExhausted, "epoll_ctl: {}", std::strerror(errno));
  }
  return std::unique_ptr<Stage>(new Stage(dma, memory, std::move(queue)));
}

StatusOr<int> Stage::Take() {
  const auto free =
      std::find_if(pieces_.begin(), pieces_.end(), [](const Piece& piece) { return !piece.taken; });
  if (free == pieces_.end()) return -1;
  if (free->memory == nullptr) {
    BATON_ASSIGN_OR_RETURN(free->memory, dma_.AllocateStaging(kPieceBytes));
  }
  free->taken = true;
  return static_cast<int>(free - pieces_.begin());
}

void Stage::Free(int piece) {
  pieces_[static_cast<size_t>(piece)].taken = false;
}

Status Stage::Start(int piece,
                    const Buffer& from,
                    const Buffer& to,
                    std::span<const CopyRun> runs) {
  BATON_RETURN_IF_ERROR(lost_);
  BATON_RETURN_IF_ERROR(queue_->Copy(static_cast<uint64_t>(piece), from, to, runs));
  ++pieces_[static_cast<size_t>(piece)].copies;
  return OkStatus();
}

Status Stage::CopyOut(int piece, std::span<const CopyRun> runs) {
  std::vector<CopyRun> copies(runs.begin(), runs.end());
  uint64_t at = 0;
  for (CopyRun& run : copies) {
    run.destination = at;
    at += run.bytes;
  }
  return Start(piece, memory_, *pieces_[static_cast<size_t>(piece)].memory, copies);
}

Status Stage::CopyIn(int piece, std::span<const CopyRun> runs) {
  std::vector<CopyRun> copies(runs.begin(), runs.end());
  uint64_t at = 0;
  for (CopyRun& run : copies) {
    run.source = at;
    at += run.bytes;
  }
  return Start(piece, *pieces_[static_cast<size_t>(piece)].memory, memory_, copies);
}

Status Stage::Poll() {
  std::array<DmaDone, kPieces> done;
  const size_t count = queue_->Poll(done);
  for (const DmaDone& end : std::span(done).first(count)) {
    --pieces_[end.id].copies;
    if (lost_.ok()) lost_ = end.status;
  }
  return lost_;
}

void Stage::Wait(int piece) {
  const SteadyClock clock;
  const Time limit = clock.Now() + kLongestCopy;
  while (is_busy(piece) && clock.Now() < limit) {
    pollfd ready{queue_->wait_fd(), POLLIN, 0};
    (void)::poll(&ready, 1, kPollMs);
    (void)Poll();
  }
}

}  // namespace baton
