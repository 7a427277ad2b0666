#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kvtransfer/bound_transport.h"
#include "kvtransfer/event_loop.h"
#include "kvtransfer/messages.h"
#include "kvtransfer/peer_streams.h"
#include "kvtransfer/transfer_stats.h"

namespace baton {

// What a sender and a receiver are made of alike: transports bound to the arenas, HELLO, the peers'
// control streams, the thread that owns the sessions, and the statistics that others may read.
// Owned by KvSender::Impl or KvReceiver::Impl. Thread-safe: streams(), Send, Post, Stats; the rest
// happens before Start or on the thread.
class TransferEnd final {
 public:
  explicit TransferEnd(KvTransferOptions options) : options_(std::move(options)) {}

  // Binds the transports and, with `listen`, has them listen; then starts the thread. Errors: those
  // of BindTransports and of listening.
  Status Start(const std::string& thread_name, bool listen, EventLoop::Turn turn);
  // As EventLoop::Stop; nothing when Start failed.
  void Stop();

  const KvTransferOptions& options() const { return options_; }
  std::vector<BoundTransport>& transports() { return transports_; }
  const Hello& hello() const { return hello_; }
  PeerStreams& streams() { return streams_; }
  EventLoop& loop() { return *loop_; }
  Time Now() const { return clock_.Now(); }

  // InvalidArgument naming the first block that is not in every local arena.
  Status CheckBlocks(std::span<const BlockId> blocks) const;
  // Best effort: a lost message is repeated or timed out by its session.
  void Send(const WorkerId& peer, const SessionKey& key, ControlMessage message);
  void Log(const std::string& line) const;

  // Whether the sessions' timers are due: once every 20 ms.
  bool Tick(Time now);
  Time next_tick() const { return next_tick_; }

  // SEAL is all that a session lacks, and goes by a channel: until the time that is returned has
  // passed, the thread had better look for it all the time, since one that sleeps hears of it a
  // tenth of a millisecond late.
  Duration ExpectSeal(Time now);
  bool expects_seal(Time now) const { return now < seal_due_; }
  // It came. Other sessions that wait for theirs hear of them a little later.
  void ForgetSeal() { seal_due_ = Time{}; }

  void Publish(KvTransferStats stats);
  KvTransferStats Stats() const;

 private:
  const KvTransferOptions options_;
  const SteadyClock clock_;
  std::vector<BoundTransport> transports_;
  Hello hello_;
  PeerStreams streams_;
  Time next_tick_{};
  Time seal_due_{};
  mutable std::mutex stats_mutex_;
  KvTransferStats published_;
  std::unique_ptr<EventLoop> loop_;  // last: its thread uses all of the above
};

}  // namespace baton
