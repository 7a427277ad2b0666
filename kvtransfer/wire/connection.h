#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/base/unique_fd.h"
#include "kvtransfer/wire/frame.h"
#include "kvtransfer/wire/granule_hasher.h"
#include "kvtransfer/wire/peer_connection.h"
#include "kvtransfer/wire/stage.h"
#include "kvtransfer/wire/window_table.h"

namespace baton {

// Receiving end of one stream channel: parses frames, lets payloads land where an open window
// allows it, and acknowledges. How payload bytes come is the subclass's part. Never blocks; memory
// is bounded by one frame's runs. Payloads for a GPU's memory come into pieces of a Stage, and are
// acknowledged when they have been copied from there. Owned by FrameServer; its thread only.
class Connection : public PeerConnection {
 public:
  struct Options {
    UniqueFd socket;
    std::string peer;
    PayloadKind kind = PayloadKind::kInline;
    Dma* dma = nullptr;  // of regions that are a GPU's memory
    int epoll_fd = -1;   // the transport's
  };
  Connection(Options options, WindowTable& windows, Time now);
  ~Connection() override;

  Status Step(Time now, size_t quantum) override;
  // What still comes for the window is thrown away.
  void OnWindowClosed(uint64_t key) override;
  int fd() const override { return socket_.get(); }
  const std::string& peer() const override { return peer_; }
  Time stalled_since() const override;
  bool in_preface() const override { return state_ == State::kPreface; }
  bool wants_write() const override { return !acks_.empty(); }
  bool is_landing() const override { return !landing_.empty(); }
  bool has_more() const override { return has_more_; }

 protected:
  // Descriptors that came with the preface.
  virtual Status OnPreface(std::vector<UniqueFd> descriptors) = 0;
  // A new frame; an error closes the connection. `keep` false: its payload is not wanted.
  virtual Status BeginPayload(const WriteHeader& header, std::span<const WriteRun> runs) = 0;
  // Puts up to `limit` further payload bytes where `to` says, or throws them away when `to` is
  // empty. How many; 0: none there yet.
  virtual StatusOr<size_t> MovePayload(std::span<const iovec> to, size_t limit) = 0;
  // Whether the payload, now in place, counts.
  virtual bool FinishPayload(const WriteHeader& header) = 0;

  // As recv; 0: nothing there yet. OutOfRange at the end of the stream.
  StatusOr<size_t> Receive(std::span<const iovec> to);

 private:
  enum class State { kPreface, kHeader, kRuns, kPayload };

  // A payload on its way from the stage to the region.
  struct Landing {
    WriteHeader header;
    std::vector<WriteRun> runs;
    std::vector<uint64_t> checksums;
    int piece = -1;
    Status verdict;
  };

  // Fills `size` bytes at `to` across calls; false: not complete yet.
  StatusOr<bool> Fill(void* to, size_t size);
  StatusOr<bool> Advance();
  StatusOr<bool> ReceivePreface();
  Status StartFrame();
  StatusOr<bool> ContinuePayload();
  void Place(size_t bytes);
  void FinishFrame();
  // Counts what has been copied from the stage.
  Status TakeLanded();
  // The end of a frame: counts it, if its verdict is OK, and answers.
  void Conclude(Landing landing);
  Status FlushAcks();

  const UniqueFd socket_;
  const std::string peer_;
  const PayloadKind kind_;
  Dma* const dma_;
  const int epoll_fd_;
  WindowTable& windows_;
  State state_ = State::kPreface;
  size_t filled_ = 0;
  Preface preface_;
  std::vector<UniqueFd> descriptors_;
  WriteHeader header_;
  std::vector<WriteRun> runs_;
  Status verdict_;  // of the current frame; not OK: its payload is thrown away
  size_t run_ = 0;  // where the next payload byte goes
  uint64_t run_offset_ = 0;
  uint64_t left_ = 0;  // of the payload
  size_t budget_ = 0;  // of the current Step
  bool has_more_ = false;
  GranuleHasher hasher_;
  int piece_ = -1;  // of the stage, for the current payload
  std::deque<Landing> landing_;
  std::unique_ptr<Stage> stage_;  // when the region is a GPU's memory
  std::string acks_;
  Time last_progress_;
};

}  // namespace baton
