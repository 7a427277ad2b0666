#pragma once

#include <functional>
#include <memory>
#include <string>

#include "common/base/unique_fd.h"
#include "kernels/backend.h"
#include "kvtransfer/receiver.h"
#include "kvtransfer/sender.h"
#include "tests/conformance/handoff_pair.h"
#include "tests/fakes/fake_gpu.h"

// One side of a hand-off, for tests with two processes.
namespace baton {

// The device of a side's arena: "cpu", "fake" (a FakeGpu) or "cuda:N".
class PeerDevice final {
 public:
  explicit PeerDevice(const std::string& name);

  Device& device() { return fake_ ? static_cast<Device&>(*fake_) : backend_->device(); }
  Dma* dma() { return fake_ ? static_cast<Dma*>(fake_.get()) : backend_->dma(); }
  FakeGpu* fake() { return fake_.get(); }

 private:
  std::unique_ptr<FakeGpu> fake_;
  std::unique_ptr<Backend> backend_;
};

struct PeerSetup {
  std::string transport;
  std::string device = "cpu";
  // If set, a sender's copies on a fake GPU do not end, except the copy of the first block.
  bool hold_copies = false;
};

// Records how sessions end. On the receiving side it grants every offer.
class PeerRecorder final : public KvSenderListener, public KvReceiverListener {
 public:
  void OnRefused(SessionId id, Epoch epoch, const Status& status) override;
  void OnFinished(SessionId id,
                  Epoch epoch,
                  const Status& status,
                  const TransferStats& stats) override;
  void OnOffer(const WorkerId& peer, SessionId id, Epoch epoch, const Offer& offer) override;
  void OnWithdrawn(SessionId id, Epoch epoch, const Status& status) override;
  void OnCommitted(SessionId id,
                   Epoch epoch,
                   const std::string& payload,
                   const TransferStats& stats) override;
  void OnReleased(SessionId id, Epoch epoch, const Status& status) override;

  SessionLogs logs;
  KvReceiver* receiver = nullptr;  // set on a receiving side
  std::function<KvTransferStats()> stats;

 private:
  void End(SessionId id, const Status& status);
};

inline const SessionId kPeerSession(1);

// Waits until some bytes were moved, for at most ten seconds. False: none were moved.
bool WaitForBytes(const PeerRecorder& recorder);

// Runs a sender that offers one prompt of four blocks over a control socket and sends the first two
// blocks. Then calls `meanwhile`.
void RunPeerSender(const PeerSetup& setup,
                   UniqueFd socket,
                   const std::function<void(PeerRecorder&)>& meanwhile);
// Runs a receiver that grants one prompt. Then calls `meanwhile`.
void RunPeerReceiver(const PeerSetup& setup,
                     UniqueFd socket,
                     const std::function<void(PeerRecorder&)>& meanwhile);

}  // namespace baton
