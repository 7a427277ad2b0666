#pragma once

#include <memory>
#include <string_view>

#include "kvtransfer/options.h"
#include "kvtransfer/transport.h"

namespace baton {

// Creates the transport of that name: "cuda_ipc", "verbs", "shm", "tcp", "nccl".
// InvalidArgument for another name; the message lists the known names.
StatusOr<std::unique_ptr<Transport>> MakeTransport(std::string_view name,
                                                   const KvTransferOptions& options);

}  // namespace baton
