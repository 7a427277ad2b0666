#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "kvtransfer/sideband/frame_socket.h"
#include "kvtransfer/wire/peer_connection.h"

namespace baton {

class OneSidedReceiver;

// The receiving end of one one-sided channel: gives the peer access to the region's memory and to
// windows into it, and handles its reports of landed bytes. Owned by a FrameServer; its thread
// only.
class OneSidedConnection final : public PeerConnection {
 public:
  // `id` identifies the peer in the receiver's tables, and `peer` names it in log lines. The
  // receiver must outlive the connection.
  OneSidedConnection(std::unique_ptr<FrameSocket> socket,
                     std::string peer,
                     uint64_t id,
                     OneSidedReceiver& receiver,
                     Time now);
  // The receiver then finds out when the peer can no longer write.
  ~OneSidedConnection() override;

  Status Step(Time now, size_t quantum) override;
  // Gives the window to the peer, if it is of the worker for which the window was opened.
  void OnWindowOpened(const WriteWindow& window) override;
  // Sends kClose to the peer, if it was given the window.
  void OnWindowClosed(uint64_t key) override;
  int fd() const override { return socket_->fd(); }
  const std::string& peer() const override { return peer_; }
  Time stalled_since() const override { return greeted_ ? kNever : since_; }
  bool in_preface() const override { return !greeted_; }
  bool wants_write() const override { return socket_->waiting() > 0; }
  bool has_more() const override { return has_more_; }

  // Gives the peer the window that it asked for, unless it has it by now, or refuses.
  void AnswerAsk(uint64_t key);
  // Acknowledges an operation, with OK or the reason why it does not count. The acknowledgement is
  // sent with others, at the end of Step or by SendAnswers.
  void Acknowledge(uint64_t op, const Status& status);
  // Sends the acknowledgements that wait. True if there were any.
  bool SendAnswers();
  // Makes the next Step, which must follow, return `reason`.
  void Break(const Status& reason);

 private:
  // Whether the peer takes too few of its answers.
  bool IsCongested();
  Status OnFrame(SidebandFrame frame);
  Status OnHello(const SidebandFrame& frame);
  Status SendWindow(const WriteWindow& window);
  // InvalidArgument: the report contradicts itself.
  static Status CheckLanded(const SidebandFrame& frame);

  const std::unique_ptr<FrameSocket> socket_;
  const std::string peer_;
  const uint64_t id_;
  OneSidedReceiver& receiver_;
  const Time since_;
  bool greeted_ = false;
  bool said_bye_ = false;
  bool has_more_ = false;
  bool has_queued_ = false;  // acknowledgements
  uint32_t region_ = 0;
  BootId boot_;    // of the peer's worker; 0: it did not say
  Status broken_;  // error of a send outside of Step
};

}  // namespace baton
