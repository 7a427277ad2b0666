#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>

#include "common/base/clock.h"
#include "common/rpc/channel.h"
#include "common/rpc/duplex_stream.h"
#include "common/worker/kv_control_link.h"
#include "common/worker/worker_loop.h"
#include "common/worker/worker_types.h"
#include "kvtransfer/sender.h"
#include "proto/kv.grpc.pb.h"

namespace baton {

// The prefill worker's KvControl streams, one to each decode worker it ever needed: dialled on
// first need, kept for later requests, dropped when the peer dies or is silent. Belongs to the
// worker's thread.
class DecodePeers final {
 public:
  // The dialling of `peer` came to an end: OK means that the sender knows it.
  using OnSettled = std::function<void(const WorkerId& peer, const Status& status)>;

  DecodePeers(KvSender& sender,
              WorkerLoop& loop,
              const Clock& clock,
              const ConnectionLimits& limits,
              OnSettled on_settled);
  ~DecodePeers();

  // True when the sender knows the peer. Else it is dialled, and on_settled follows.
  bool Connect(const KvPeer& peer);
  // Gives up on peers that took the call but never said HELLO.
  void OnTick(Time now);
  // Breaks all streams off. No call any more.
  void Stop();

 private:
  using Stream = ClientStream<kv::v1::Frame, kv::v1::Frame>;
  struct Connection;

  void Dial(const KvPeer& peer);
  void OnHello(const std::shared_ptr<Connection>& connection);
  void OnClosed(const std::shared_ptr<Connection>& connection, const Status& status);
  static void AwaitEnd(const Connection& connection);

  KvSender& sender_;
  WorkerLoop& loop_;
  const Clock& clock_;
  const ConnectionLimits limits_;
  const OnSettled on_settled_;
  std::map<WorkerId, std::shared_ptr<Connection>> connections_;
};

}  // namespace baton
