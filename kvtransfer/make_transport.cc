#include "kvtransfer/make_transport.h"

#include "kvtransfer/cuda_ipc/cuda_ipc_transport.h"
#include "kvtransfer/shm/shm_transport.h"
#include "kvtransfer/tcp/tcp_transport.h"

namespace baton {

StatusOr<std::unique_ptr<Transport>> MakeTransport(std::string_view name,
                                                   const KvTransferOptions& options) {
  if (name == "cuda_ipc") {
    return CudaIpcTransport::Create(options.transport, options.dma, options.log);
  }
  if (name == "shm") return ShmTransport::Create(options.transport, options.log);
  if (name == "tcp") return TcpTransport::Create(options.transport, options.dma, options.log);
  return InvalidArgument("KV transport '{}' is unknown; this build has cuda_ipc, shm and tcp",
                         name);
}

}  // namespace baton
