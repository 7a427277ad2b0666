#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kvtransfer/data_plane/data_plane.h"
#include "kvtransfer/handoff/peer_streams.h"
#include "kvtransfer/loop/event_loop.h"
#include "kvtransfer/messages/messages.h"
#include "kvtransfer/options.h"
#include "kvtransfer/transfer_stats.h"

namespace baton {

// The parts that a sender and a receiver have in common: the data plane, HELLO, the peers'
// control streams, the thread that owns the sessions, and the published statistics. Owned by
// KvSender::Impl or KvReceiver::Impl. Thread-safe: streams(), Send, Post, Stats. Everything else is
// called before Start or on the thread.
class TransferCore final {
 public:
  explicit TransferCore(KvTransferOptions options) : options_(std::move(options)) {}

  // Creates the data plane (KvTransferOptions::make_data_plane), which listens if `listen`; then
  // starts the thread. Errors: those of CheckStates and of the data plane's creation.
  Status Start(const std::string& thread_name, bool listen, EventLoop::Iteration iteration);
  // As EventLoop::Stop. Does nothing if Start failed.
  void Stop();

  const KvTransferOptions& options() const { return options_; }
  DataPlane& data_plane() { return *data_plane_; }
  const Hello& hello() const { return hello_; }
  // The arena blocks of a state on this worker.
  uint32_t state_blocks() const { return state_blocks_; }
  PeerStreams& streams() { return streams_; }
  EventLoop& loop() { return *loop_; }
  Time Now() const { return clock_.Now(); }

  // InvalidArgument that names the first block outside an arena.
  Status CheckBlocks(std::span<const BlockId> blocks) const;
  // Best effort: the session repeats a lost message, or times out.
  void Send(const WorkerId& peer, const SessionKey& key, ControlMessage message);
  void Log(const std::string& line) const;

  // True once every 20 ms: the sessions' timers must then be checked.
  bool Tick(Time now);
  Time next_tick() const { return next_tick_; }

  // A session lacks only its SEAL, which will come as a note of the data channel. The thread then
  // busy-polls for the returned duration, because waking a sleeping thread takes 0.1 ms.
  Duration AwaitSeal(Time now);
  bool expects_seal(Time now) const { return now < seal_due_; }
  // The SEAL came: the busy-polling ends. Other sessions that wait for their SEAL receive it a
  // little later.
  void ForgetSeal() { seal_due_ = Time{}; }

  void Publish(KvTransferStats stats);
  KvTransferStats Stats() const;

 private:
  const KvTransferOptions options_;
  const SteadyClock clock_;
  std::unique_ptr<DataPlane> data_plane_;
  Hello hello_;
  uint32_t state_blocks_ = 0;
  PeerStreams streams_;
  Time next_tick_{};
  Time seal_due_{};
  mutable std::mutex stats_mutex_;
  KvTransferStats published_;
  std::unique_ptr<EventLoop> loop_;  // last: its thread uses all other members
};

}  // namespace baton
