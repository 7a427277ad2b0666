#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/unique_fd.h"
#include "kvtransfer/one_sided/remote_access.h"
#include "kvtransfer/verbs/rail_queues.h"
#include "kvtransfer/verbs/verbs_socket.h"

namespace baton {

// The access of one peer: queue pairs of its own, through which it may write into the registered
// memory. Destroying them takes the access back without the peer's help. Contract, owner and
// thread: RemoteAccess.
class VerbsAccess final : public RemoteAccess {
 public:
  // The keys of a memory by rail; empty if it is not registered.
  using FindKeys = std::function<std::vector<uint32_t>(const Buffer& memory)>;

  // `rails` are all rails of this process. They must outlive the access. `dma` is the GPU's whose
  // memory the peer will write, or null. `socket` is the peer's, which the access uses only in
  // Open.
  static StatusOr<std::unique_ptr<RemoteAccess>> Create(
      std::string peer,
      std::span<const std::unique_ptr<Rail>> rails,
      FindKeys find_keys,
      Dma* dma,
      VerbsSocket& socket);

  const std::string& peer() const override { return peer_; }
  // `greeting`: the Handshake of the peer's VerbsCopier. Returns a Handshake.
  StatusOr<std::string> Open(const Buffer& memory, std::string_view greeting) override;
  bool HasLanded(uint32_t mark) override;
  bool Revoke() override;
  int wait_fd() const override { return epoll_.get(); }

 private:
  VerbsAccess(std::string peer,
              std::span<const std::unique_ptr<Rail>> rails,
              FindKeys find_keys,
              Dma* dma,
              VerbsSocket& socket,
              UniqueFd epoll)
      : peer_(std::move(peer)),
        rails_(rails),
        find_keys_(std::move(find_keys)),
        dma_(dma),
        socket_(socket),
        epoll_(std::move(epoll)) {}

  StatusOr<std::vector<RailQueues::RailUse>> RailsOf(const Handshake& greeting) const;
  // Records the copies that have landed, and posts receive requests for the next ones.
  void TakeLanded();
  // Whether the copy has landed and, in a GPU's memory, is visible to the GPU.
  bool IsVisible(uint32_t mark);

  const std::string peer_;
  const std::span<const std::unique_ptr<Rail>> rails_;
  const FindKeys find_keys_;
  Dma* const dma_;
  VerbsSocket& socket_;
  const UniqueFd epoll_;  // watches the queues
  std::unique_ptr<RailQueues> queues_;
  std::vector<uint32_t> landed_;  // by queue pair: the number of the latest copy
  bool needs_flush_ = false;      // bytes of a GPU's memory have landed since the last flush
  bool is_revoked_ = false;
};

}  // namespace baton
