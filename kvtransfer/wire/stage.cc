#include "kvtransfer/wire/stage.h"

#include <poll.h>

#include <algorithm>

#include "common/base/clock.h"
#include "kvtransfer/epoll.h"

namespace baton {
namespace {

constexpr Duration kLongestCopy = std::chrono::seconds(5);
constexpr int kPollMs = 10;

// `runs` with the offsets on one side, the piece's, replaced: there the runs follow each other
// without gaps.
std::vector<CopyRun> Contiguous(std::span<const CopyRun> runs, uint64_t CopyRun::*side) {
  std::vector<CopyRun> copies(runs.begin(), runs.end());
  uint64_t at = 0;
  for (CopyRun& run : copies) {
    run.*side = at;
    at += run.bytes;
  }
  return copies;
}

}  // namespace

StatusOr<std::unique_ptr<Stage>> Stage::Create(Dma& dma, const Buffer& memory, int epoll_fd) {
  BATON_ASSIGN_OR_RETURN(auto queue, dma.MakeQueue());
  BATON_RETURN_IF_ERROR(WatchFd(epoll_fd, queue->wait_fd()));
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
  queue_->WatchEnds();
  ++pieces_[static_cast<size_t>(piece)].copies;
  return OkStatus();
}

Status Stage::CopyOut(int piece, std::span<const CopyRun> runs) {
  return Start(piece,
               memory_,
               *pieces_[static_cast<size_t>(piece)].memory,
               Contiguous(runs, &CopyRun::destination));
}

Status Stage::CopyIn(int piece, std::span<const CopyRun> runs) {
  return Start(piece,
               *pieces_[static_cast<size_t>(piece)].memory,
               memory_,
               Contiguous(runs, &CopyRun::source));
}

Status Stage::Poll() {
  std::array<DmaDone, kPieces> done;
  const size_t count = queue_->Poll(done);
  for (const DmaDone& end : std::span(done).first(count)) {
    --pieces_[end.id].copies;
    if (lost_.ok()) lost_ = end.status;
  }
  queue_->WatchEnds();
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
