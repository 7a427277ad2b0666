#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/base/unique_fd.h"
#include "kvtransfer/wire/frame.h"
#include "kvtransfer/wire/granule_hasher.h"
#include "kvtransfer/wire/peer_connection.h"
#include "kvtransfer/wire/window_table.h"

namespace baton {

// Receiving end of one stream channel: parses frames, lets payloads land where an open window
// allows it, and acknowledges. How payload bytes come is the subclass's part. Never blocks; memory
// is bounded by one frame's runs. Owned by FrameServer; its thread only.
class Connection : public PeerConnection {
 public:
  Connection(UniqueFd socket, std::string peer, PayloadKind kind, WindowTable& windows, Time now);
  ~Connection() override;

  Status Step(Time now, size_t quantum) override;
  // What still comes for the window is thrown away.
  void OnWindowClosed(uint64_t key) override;
  int fd() const override { return socket_.get(); }
  const std::string& peer() const override { return peer_; }
  Time stalled_since() const override;
  bool in_preface() const override { return state_ == State::kPreface; }
  bool wants_write() const override { return !acks_.empty(); }
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

  // Fills `size` bytes at `to` across calls; false: not complete yet.
  StatusOr<bool> Fill(void* to, size_t size);
  StatusOr<bool> Advance();
  StatusOr<bool> ReceivePreface();
  Status StartFrame();
  StatusOr<bool> ContinuePayload();
  void Place(size_t bytes);
  void FinishFrame();
  Status FlushAcks();

  const UniqueFd socket_;
  const std::string peer_;
  const PayloadKind kind_;
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
  std::string acks_;
  Time last_progress_;
};

}  // namespace baton
