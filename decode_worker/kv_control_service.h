#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "common/rpc/duplex_stream.h"
#include "common/worker/kv_control_wire.h"
#include "kvtransfer/receiver.h"
#include "proto/kv.grpc.pb.h"

namespace baton {

// The decode worker's end of KvControl. Accepts the streams of prefill workers and adds each to the
// receiver under the worker id in its HELLO. A second stream of the same worker replaces the first.
// Thread-safe. `receiver` outlives the server that serves this service.
class KvControlService final : public kv::v1::KvControl::CallbackService {
 public:
  // `proofs`: how prefill workers prove that they belong to the cluster; null: they do not.
  KvControlService(KvReceiver& receiver, std::shared_ptr<const PeerProofs> proofs)
      : receiver_(receiver), proofs_(std::move(proofs)) {}

  grpc::ServerBidiReactor<kv::v1::Frame, kv::v1::Frame>* Control(
      grpc::CallbackServerContext* context) override;

 private:
  using Stream = ServerStream<kv::v1::Frame, kv::v1::Frame>;
  struct Connection;

  Status OnFrame(const std::shared_ptr<Connection>& connection, const kv::v1::Frame& frame);
  Status OnHello(const std::shared_ptr<Connection>& connection, const Hello& hello);
  void OnClosed(const std::shared_ptr<Connection>& connection, const Status& status);

  KvReceiver& receiver_;
  const std::shared_ptr<const PeerProofs> proofs_;
  std::mutex mutex_;
  std::map<WorkerId, std::shared_ptr<Connection>> peers_;  // guarded by mutex_
};

}  // namespace baton
