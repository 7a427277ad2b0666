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

// A few pieces of host memory between a GPU's memory and a socket. Each piece holds the payload of
// one write, in payload order. Owned by a channel or a connection; its thread only. The destructor
// waits for the copies under way.
class Stage final {
 public:
  static constexpr size_t kPieces = 4;
  static constexpr size_t kPieceBytes = size_t{4} << 20;

  // `memory` is the GPU's, and must outlive the stage. `epoll_fd` reports when a copy has ended.
  static StatusOr<std::unique_ptr<Stage>> Create(Dma& dma, const Buffer& memory, int epoll_fd);

  // Takes a free piece and returns its number; -1: no piece is free. Errors: ResourceExhausted.
  StatusOr<int> Take();
  void Free(int piece);
  std::byte* data(int piece) const { return pieces_[static_cast<size_t>(piece)].memory->data(); }

  // Start a copy of the runs' sources into the piece, or of the piece into the runs' destinations.
  Status CopyOut(int piece, std::span<const CopyRun> runs);
  Status CopyIn(int piece, std::span<const CopyRun> runs);
  // Handles the copies that have ended. An error: the device is lost.
  Status Poll();
  bool is_busy(int piece) const { return pieces_[static_cast<size_t>(piece)].copies > 0; }
  // Waits until the piece is not busy: a fraction of a millisecond, or up to 5 s if the device is
  // lost.
  void Wait(int piece);

 private:
  struct Piece {
    std::unique_ptr<Buffer> memory;  // null until first used
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
  std::unique_ptr<DmaQueue> queue_;  // destroyed before the pieces
};

}  // namespace baton
