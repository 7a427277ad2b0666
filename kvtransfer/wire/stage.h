#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "common/base/status.h"
#include "kernels/dma.h"

namespace baton {

// A few pieces of host memory through which a GPU's memory goes to a socket, or comes from it: a
// write's payload lies in one piece, in its order. Owned by a channel or a connection; its thread
// only. Its destruction waits for the copies under way.
class Stage final {
 public:
  static constexpr size_t kPieces = 4;
  static constexpr size_t kPieceBytes = size_t{4} << 20;

  // `memory` is the GPU's, and outlives the stage; `epoll_fd` shall tell when a copy ends.
  static StatusOr<std::unique_ptr<Stage>> Create(Dma& dma, const Buffer& memory, int epoll_fd);

  // The number of a free piece, which is taken now; -1: there is none. Errors: ResourceExhausted.
  StatusOr<int> Take();
  void Free(int piece);
  std::byte* data(int piece) const { return pieces_[static_cast<size_t>(piece)].memory->data(); }

  // Starts to copy the runs' sources into the piece, or the piece to the runs' destinations.
  Status CopyOut(int piece, std::span<const CopyRun> runs);
  Status CopyIn(int piece, std::span<const CopyRun> runs);
  // Takes in which copies have ended. An error: the device is lost.
  Status Poll();
  bool is_busy(int piece) const { return pieces_[static_cast<size_t>(piece)].copies > 0; }
  // Waits until the piece is not busy: a fraction of a millisecond, unless the device is lost.
  void Wait(int piece);

 private:
  struct Piece {
    std::unique_ptr<Buffer> memory;  // null: never used yet
    bool taken = false;
    int copies = 0;
  };

  Stage(Dma& dma, const Buffer& memory, std::unique_ptr<DmaQueue> queue)
      : dma_(dma), memory_(memory), queue_(std::move(queue)) {}
  Status Start(int piece, const Buffer& from, const Buffer& to, std::span<const CopyRun> runs);

  Dma& dma_;
  const Buffer& memory_;
  std::array<Piece, kPieces> pieces_;
  Status lost_;
  std::unique_ptr<DmaQueue> queue_;  // gone before the pieces
};

}  // namespace baton
