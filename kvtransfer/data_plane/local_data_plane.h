#pragma once

#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "kvtransfer/data_plane/bound_transport.h"
#include "kvtransfer/data_plane/data_plane.h"
#include "kvtransfer/options.h"

namespace baton {

// The data plane of the ranks whose arenas this process reaches. It leaves out shards without an
// arena, but counts them in the indices of shards and links.
class LocalDataPlane final : public DataPlane {
 public:
  // Binds the transports to the arenas and, if `listen`, lets them listen. Errors: those of
  // BindTransports and of Transport::Listen. `options` must outlive the data plane.
  static StatusOr<std::unique_ptr<LocalDataPlane>> Create(const KvTransferOptions& options,
                                                          bool listen);
  ~LocalDataPlane() override;

  const std::vector<KvShardInfo>& shards() const override { return shards_; }
  std::vector<int> wait_fds() const override;
  StatusOr<std::unique_ptr<PeerWriter>> NewWriter(const Hello& theirs) override;
  Status OpenWindows(const SessionKey& session, WindowGrant grant) override;
  void SetReceiveRate(uint64_t bytes_per_second) override;
  void CloseWindows(const SessionKey& session) override;
  void Poll(Time now, WindowListener& listener) override;

 private:
  struct SessionWindows {
    WindowGrant grant;
    size_t open = 0;
  };
  struct WindowOwner {
    SessionKey session;
    uint32_t shard = 0;
  };

  explicit LocalDataPlane(const KvTransferOptions& options) : options_(options) {}
  // Makes shards_; if `listen`, every transport starts to listen.
  Status MakeShards(bool listen);
  void OnEvent(const Arrival& arrival, const Transport& transport, WindowListener& listener);
  void OnArrived(const SessionWindows& windows,
                 const WindowOwner& owner,
                 const Arrival& arrival,
                 const Transport& transport,
                 WindowListener& listener) const;
  // OK if the payload was written exactly where its tag says.
  Status CheckPlacement(const WindowGrant& grant,
                        uint32_t shard,
                        const Arrival& arrival,
                        const PieceArrival& piece) const;
  void Forget(const SessionKey& session);

  const KvTransferOptions& options_;
  std::vector<BoundTransport> transports_;
  std::vector<KvShardInfo> shards_;
  std::map<SessionKey, SessionWindows> sessions_;
  std::unordered_map<uint64_t, WindowOwner> windows_;  // by window key
  std::vector<SessionKey> never_opened_;  // closed without an open window; Poll reports them
};

}  // namespace baton
