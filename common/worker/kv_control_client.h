#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>

#include "common/base/clock.h"
#include "common/cluster/worker_info.h"
#include "common/rpc/channel.h"
#include "common/rpc/closing_streams.h"
#include "common/rpc/duplex_stream.h"
#include "common/worker/kv_control_wire.h"
#include "common/worker/worker_loop.h"
#include "kvtransfer/sender.h"
#include "proto/kv.grpc.pb.h"

namespace baton {

// The prefill worker's KvControl streams, one to each decode worker. A stream is dialled when it is
// first needed, kept for later requests, and dropped when the peer dies or sends no HELLO. Used on
// the worker's thread.
class DecodePeers final {
 public:
  // Called when dialling `peer` succeeded (OK: the peer has been added to the sender) or failed.
  using OnSettled = std::function<void(const WorkerId& peer, const Status& status)>;

  DecodePeers(KvSender& sender,
              WorkerLoop& loop,
              const Clock& clock,
              const ConnectionLimits& limits,
              OnSettled on_settled);
  ~DecodePeers();

  // True when the peer is connected. Else the peer is dialled, and on_settled follows.
  bool Connect(const Peer& peer);
  // Closes streams whose peer sent no HELLO in time.
  void OnTick(Time now);
  // Breaks all streams and waits for their ends. No call of on_settled follows. Called after the
  // worker's thread has ended.
  void Stop();

 private:
  using Stream = ClientStream<kv::v1::Frame, kv::v1::Frame>;
  struct Connection;

  void Dial(const Peer& peer);
  void OnHello(const std::shared_ptr<Connection>& connection);
  void OnClosed(const std::shared_ptr<Connection>& connection, const Status& status);

  KvSender& sender_;
  WorkerLoop& loop_;
  const Clock& clock_;
  const ConnectionLimits limits_;
  const OnSettled on_settled_;
  std::map<WorkerId, std::shared_ptr<Connection>> connections_;
  ClosingStreams closing_;
};

}  // namespace baton
