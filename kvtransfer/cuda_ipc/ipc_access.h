#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "common/base/unique_fd.h"
#include "kernels/dma.h"
#include "kvtransfer/one_sided/remote_access.h"

namespace baton {

// The access of another process of this host to exported GPU memory. CUDA cannot take an imported
// memory handle back, so only the end of the process proves that it writes no more. Contract,
// owner and thread: RemoteAccess.
class IpcAccess final : public RemoteAccess {
 public:
  // `socket` is the connection to the peer; it is not kept. `dma` must outlive the access.
  // PermissionDenied: the peer runs as another user. Unavailable: the end of the peer's process
  // cannot be watched.
  static StatusOr<std::unique_ptr<RemoteAccess>> Create(const UniqueFd& socket, Dma& dma);

  const std::string& peer() const override { return peer_; }
  // The greeting of a DmaCopier is empty. Returns what Dma::Export returns.
  StatusOr<std::string> Open(const Buffer& memory, std::string_view greeting) override;
  // True: a copy engine ends a copy when its bytes are in place.
  bool HasLanded(uint32_t) override { return true; }
  // True once the process has ended.
  bool Revoke() override;
  int wait_fd() const override { return process_.get(); }

 private:
  IpcAccess(std::string peer, UniqueFd process, Dma& dma);

  const std::string peer_;
  const UniqueFd process_;  // pidfd; readable once the process has ended
  Dma& dma_;
};

}  // namespace baton
