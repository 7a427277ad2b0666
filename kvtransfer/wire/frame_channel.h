#pragma once

#include <sys/uio.h>

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "common/base/peer_proof.h"
#include "common/base/unique_fd.h"
#include "kvtransfer/wire/frame.h"
#include "kvtransfer/wire/granule_hasher.h"
#include "kvtransfer/wire/rate_meter.h"
#include "kvtransfer/wire/slot_table.h"
#include "kvtransfer/wire/staging_buffers.h"
#include "kvtransfer/wire/window_table.h"

namespace baton {

// The sending end of a stream transport's channel: queues frames, writes them to the socket, and
// matches acknowledgements. Owned by the transport's user; its thread only.
class FrameChannel final : public Channel {
 public:
  struct Options {
    UniqueFd socket;  // non-blocking; may still be connecting
    int epoll_fd = -1;
    WindowTable::Memory source;
    Preface preface;
    std::vector<UniqueFd> descriptors;        // sent with the preface
    std::unique_ptr<SlotTable> slots;         // set if the receiver reads the source itself (shm)
    std::unique_ptr<StagingBuffers> staging;  // set if the source is a GPU's memory
    Duration connect_timeout{};
    // Exchanged before the preface; null: none. Needed if the preface has kAuthenticated.
    std::unique_ptr<PeerProof> proof;
  };

  explicit FrameChannel(Options options);
  ~FrameChannel() override;

  StatusOr<OpId> PostWrite(const WriteOp& op) override;
  void RequestAbort(OpId op) override;
  // Does nothing: the receiver closes windows without the sender.
  void Release(uint64_t) override {}
  void Fence() override;
  size_t Poll(Time now, std::span<WriteEvent> events) override;
  Status status() const override { return status_; }
  double bytes_per_second() const override { return rate_.bytes_per_second(); }

 private:
  struct Op {
    WriteHeader header;
    std::vector<WriteRun> runs;
    uint64_t sent = 0;  // bytes of the frame in the socket
    bool abort_requested = false;
    bool is_tagged = false;  // it has its tags, and must be sent
    MacTag head_tag{};       // of the header and the runs
    MacTag payload_tag{};
    int buffer = -1;  // the staging buffer of the payload
    bool is_staged = false;
    bool is_gathered = false;  // its payload is in gathered_
  };

  bool is_inline() const { return slots_ == nullptr; }
  // Reports the checksums of the payload, which is in `parts` and is about to be sent.
  void ReportChecksums(const WriteHeader& header, std::span<const iovec> parts);
  // Copies queued payloads from the GPU into free staging buffers.
  void PumpStaging();
  void FreeBuffer(Op& op);
  bool is_ready(const Op& op) const {
    return staging_ == nullptr || op.is_staged || op.header.payload_bytes == 0;
  }
  // The messages of an authenticated channel have tags; those of other channels have none.
  size_t tag_bytes() const { return sent_mac_ == nullptr ? 0 : sizeof(MacTag); }
  // Gathers the payload of the next frame if it has many short runs, and computes its tags.
  void Prepare(Op& op);
  void Gather(Op& op);
  // Computes the tags of the next frame.
  void Tag(Op& op);
  // Calls `add` with begin and size of each part of the payload, until `add` returns false.
  template <class Add>
  void ForPayload(Op& op, const Add& add);
  uint64_t FrameBytes(const Op& op) const;
  size_t FrameParts(Op& op, std::span<iovec> parts);
  void CheckConnected(Time now);
  void SendQueued();
  bool is_proven() const { return proof_ == nullptr || proof_->done(); }
  // Sends what is due of the handshake. Returns true when the handshake is complete.
  bool SendProof();
  bool SendPreface();
  // Takes bytes of the handshake from the front of `bytes`.
  void TakeProof(std::string_view& bytes);
  // The handshake is complete: begins to authenticate, if the preface says that.
  void OnProven();
  void ReceiveAcks();
  void OnAckBytes();
  void OnAck(const WriteAck& ack);
  void AfterSend();
  void End(uint64_t op, WriteEvent::Kind kind, Status status);
  // Ends every operation with `kind`; operations that the receiver has counted end with kDone.
  void Die(const Status& reason, WriteEvent::Kind kind);
  void WatchSocket();

  UniqueFd socket_;
  const int epoll_fd_;
  const WindowTable::Memory source_;
  const Preface preface_;
  std::string preface_out_;  // the preface and its tag
  std::vector<UniqueFd> descriptors_;
  const std::unique_ptr<SlotTable> slots_;
  const std::unique_ptr<StagingBuffers> staging_;
  const Duration connect_timeout_;
  Time connect_until_{};
  bool connected_ = false;
  const std::unique_ptr<PeerProof> proof_;
  std::string proof_out_;  // bytes of the handshake to be sent
  std::string proof_in_;   // an incomplete message
  // Of an authenticated channel: what this side sends, and what the peer sends.
  std::unique_ptr<MessageMac> sent_mac_;
  std::unique_ptr<MessageMac> received_mac_;
  size_t preface_sent_ = 0;
  uint32_t watched_ = 0;
  Status status_;
  uint64_t next_op_ = 1;
  std::deque<Op> queue_;             // not fully sent; the first may be sent in part
  std::vector<std::byte> gathered_;  // the payload of the first one, if its runs are short
  // Operations that wait for an acknowledgement, with the bytes of their payload.
  std::unordered_map<uint64_t, uint64_t> sent_;
  RateMeter rate_;
  std::deque<WriteEvent> events_;
  GranuleHasher hasher_;
  std::array<char, sizeof(WriteAck) + sizeof(MacTag)> ack_{};
  size_t ack_filled_ = 0;
};

}  // namespace baton
