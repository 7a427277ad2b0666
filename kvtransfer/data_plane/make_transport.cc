#include "kvtransfer/data_plane/make_transport.h"

#include "kvtransfer/cuda_ipc/cuda_ipc_transport.h"
#include "kvtransfer/nccl/nccl_transport.h"
#include "kvtransfer/shm/shm_transport.h"
#include "kvtransfer/tcp/tcp_transport.h"

#ifdef BATON_HAS_VERBS
#include "kvtransfer/verbs/verbs_transport.h"
#endif

namespace baton {
namespace {

// The transport's options, with the boot that all transports of the worker have.
TransportOptions OptionsOf(const KvTransferOptions& options) {
  TransportOptions transport = options.transport;
  transport.boot = options.boot;
  return transport;
}

StatusOr<std::unique_ptr<Transport>> MakeVerbs(const KvTransferOptions& options) {
#ifdef BATON_HAS_VERBS
  return VerbsTransport::Create(
      VerbsLibrary::Load(), OptionsOf(options), options.dma, options.log, options.log_info);
#else
  (void)options;
  return MakeStatus(StatusCode::kUnavailable,
                    "this build has no verbs: build it where libibverbs-dev is installed");
#endif
}

}  // namespace

StatusOr<std::unique_ptr<Transport>> MakeTransport(std::string_view name,
                                                   const KvTransferOptions& options) {
  if (name == "cuda_ipc") {
    return CudaIpcTransport::Create(OptionsOf(options), options.dma, options.log);
  }
  if (name == "shm") return ShmTransport::Create(options.transport, options.log);
  if (name == "tcp") return TcpTransport::Create(options.transport, options.dma, options.log);
  if (name == "verbs") return MakeVerbs(options);
  if (name == "nccl") return NcclTransport::Create(options.transport, options.dma, options.log);
  return InvalidArgument(
      "KV transport '{}' is unknown; there are cuda_ipc, verbs, shm, tcp and nccl", name);
}

}  // namespace baton
