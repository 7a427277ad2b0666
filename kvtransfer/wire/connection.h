#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/base/peer_proof.h"
#include "common/base/unique_fd.h"
#include "kvtransfer/wire/frame.h"
#include "kvtransfer/wire/granule_hasher.h"
#include "kvtransfer/wire/peer_connection.h"
#include "kvtransfer/wire/staging_buffers.h"
#include "kvtransfer/wire/window_table.h"

namespace baton {

// The receiving end of one stream channel: checks the peer's proof, parses frames, writes payloads
// only where an open window allows it, and acknowledges. The subclass defines how payload bytes
// arrive. Never blocks; memory is bounded by the runs of one frame. Payloads for a GPU's memory
// first go to StagingBuffers, and are acknowledged after the copy from there has ended. Owned by
// FrameServer; its thread only.
class Connection : public PeerConnection {
 public:
  struct Options {
    UniqueFd socket;
    std::string peer;
    PayloadKind kind = PayloadKind::kInline;
    Dma* dma = nullptr;  // for regions in a GPU's memory; else null
    int epoll_fd = -1;   // the transport's
    // How the peer proves who it is, before its preface; null: it does not.
    std::shared_ptr<const PeerProofs> proofs = nullptr;
    // Refuses a peer whose frames are not authenticated (kAuthenticated). Needs `proofs`.
    bool requires_tags = false;
  };
  Connection(Options options, WindowTable& windows, Time now);
  ~Connection() override;

  Status Step(Time now, size_t quantum) override;
  // Further bytes for the window are discarded.
  void OnWindowClosed(uint64_t key) override;
  uint64_t moved() const override { return moved_; }
  int fd() const override { return socket_.get(); }
  const std::string& peer() const override { return peer_; }
  Time stalled_since() const override;
  bool in_preface() const override { return state_ <= State::kPrefaceTag; }
  bool wants_write() const override { return !acks_.empty(); }
  bool is_landing() const override { return !landing_.empty(); }
  bool has_more() const override { return has_more_; }

 protected:
  // Takes the file descriptors that came with the preface.
  virtual Status OnPreface(std::vector<UniqueFd> descriptors) = 0;
  // A new frame begins. An error closes the connection.
  virtual Status BeginPayload(const WriteHeader& header, std::span<const WriteRun> runs) = 0;
  // Writes up to `limit` further payload bytes to `to`, or discards them if `to` is empty. Returns
  // their number; 0: none has arrived yet. Adds them to `hasher` too, if that is not null.
  virtual StatusOr<size_t> MovePayload(std::span<const iovec> to,
                                       size_t limit,
                                       GranuleHasher* hasher) = 0;
  // The payload is in place. Returns false when the sender has taken the write back: the payload is
  // then ignored.
  virtual bool FinishPayload(const WriteHeader& header) = 0;

  // As recv; 0: nothing has arrived yet. OutOfRange at the end of the stream.
  StatusOr<size_t> Receive(std::span<const iovec> to);

 private:
  enum class State {
    kProof,
    kPreface,
    kPrefaceTag,
    kHeader,
    kRuns,
    kRunsTag,
    kPayload,
    kPayloadTag
  };

  // A payload that is being copied from a staging buffer to the region.
  struct Landing {
    WriteHeader header;
    std::vector<ByteRange> ranges;
    std::vector<uint64_t> checksums;
    int buffer = -1;
    Status verdict;
  };

  // Fills `size` bytes at `to`, over several calls if necessary. False: not complete yet.
  StatusOr<bool> Fill(void* to, size_t size);
  StatusOr<bool> Advance();
  StatusOr<bool> ReceiveProof();
  StatusOr<bool> ReceivePreface();
  // Makes the MACs of an authenticated connection. An error: the peer may not send such a preface.
  Status AgreeOnTags();
  Status AcceptPreface();
  // Receives the tag of the message that has just been received. False: not complete yet. An error:
  // the tag is not the message's.
  StatusOr<bool> ReceiveTag(std::string_view message);
  Status StartFrame();
  StatusOr<bool> ContinuePayload();
  // The next payload bytes have landed: hashes them, unless MovePayload did, and advances the
  // cursor. Copies them from scatter_ to their runs if the payload goes there first.
  void Place(size_t bytes);
  void FinishFrame();
  // Concludes the frames whose copy from a staging buffer has ended.
  Status TakeLanded();
  // The end of a frame: reports its arrival if its verdict is OK, and acknowledges it.
  void Conclude(Landing landing);
  Status FlushAcks();

  const UniqueFd socket_;
  const std::string peer_;
  const PayloadKind kind_;
  Dma* const dma_;
  const int epoll_fd_;
  WindowTable& windows_;
  const std::shared_ptr<const PeerProofs> proofs_;
  const bool requires_tags_;
  const std::unique_ptr<PeerProof> proof_;
  // Of an authenticated connection: what the peer sends, and what this side sends.
  std::unique_ptr<MessageMac> received_mac_;
  std::unique_ptr<MessageMac> sent_mac_;
  MacTag tag_{};
  std::array<char, kPeerProofBytes> proof_message_{};
  State state_;
  size_t filled_ = 0;
  Preface preface_;
  std::vector<UniqueFd> descriptors_;
  WriteHeader header_;
  std::vector<WriteRun> runs_;
  std::vector<ByteRange> ranges_;  // that the runs write
  Status verdict_;                 // of the current frame; not OK: its payload is discarded
  size_t run_ = 0;                 // the run that receives the next payload byte
  uint64_t run_offset_ = 0;
  bool is_hashed_on_the_way_ = false;  // by MovePayload
  bool is_scattered_ = false;       // the payload has many short runs, and goes to scatter_ first
  std::vector<std::byte> scatter_;  // kReadBytes, or empty
  uint64_t left_ = 0;               // payload bytes still to come
  size_t budget_ = 0;               // bytes left for the current Step
  uint64_t moved_ = 0;              // payload bytes of the current Step
  bool has_more_ = false;
  GranuleHasher hasher_;
  int buffer_ = -1;  // the staging buffer of the current payload
  std::deque<Landing> landing_;
  std::unique_ptr<StagingBuffers> staging_;  // set if the region is a GPU's memory
  std::string acks_;
  Time last_progress_;
};

}  // namespace baton
