#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kvtransfer/data_plane/data_plane.h"
#include "kvtransfer/group/shard_messages.h"
#include "kvtransfer/group/shard_port.h"
#include "kvtransfer/loop/event_loop.h"
#include "kvtransfer/options.h"

namespace baton {

// The end of a ShardPort at a rank that is on another host than the leading rank: one data plane of
// this rank's arena, which does what the leading rank commands, and reports what happens. It has a
// thread. OnMessage and the destructor are called on one thread.
class ShardServer final : private WindowListener {
 public:
  struct Options {
    // How KV moves: all members but the worker, the boot, the model and the shards.
    KvTransferOptions transfer;
    uint32_t shard = 0;             // the index of this rank's shard
    const Buffer* arena = nullptr;  // outlives the server
    PlaneRole plane = PlaneRole::kSender;
    // Sends a message to the leading rank. Any thread.
    std::function<void(std::string_view message)> send;
  };

  explicit ShardServer(Options options);
  ~ShardServer() override;

  // A message of the leading rank. The first opens the data plane.
  void OnMessage(std::string_view message);

 private:
  class Writer;

  Status Open(const ShardCommand& command);
  Time Iteration(Time now);
  // On the thread.
  void Do(const ShardCommand& command);
  void DoForWriter(const ShardCommand& command);
  Status OpenWindows(const ShardCommand& command);
  void Answer(const ShardCommand& command, const Status& status, ShardEvent event = {}) const;
  void Send(const ShardEvent& event) const { options_.send(Encode(event)); }

  void OnArrival(const SessionKey& session,
                 const PieceArrival& piece,
                 std::string_view transport,
                 bool polls_for_seal) override;
  void OnMisplaced(const SessionKey& session, const Status& error) override;
  // Notes go to the leading rank's own data plane only (PeerWriter::takes_notes).
  void OnNote(const SessionKey& /*session*/, std::string_view /*note*/) override {}
  void OnWindowsClosed(const SessionKey& session, const Status& status) override;

  Options options_;
  std::unique_ptr<DataPlane> data_plane_;
  std::map<uint64_t, std::unique_ptr<Writer>> writers_;
  std::vector<std::unique_ptr<Writer>> departing_;  // fenced; kept until their last events came
  std::shared_ptr<const PeerLinks> peer_;           // of the last window, which others often share
  std::unique_ptr<EventLoop> loop_;                 // last: its thread uses all other members
};

}  // namespace baton
