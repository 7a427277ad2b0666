#pragma once

#include <grpcpp/support/status.h>

#include "common/base/status.h"

namespace baton {

// The one mapping between our statuses and gRPC's. The codes are the same numbers
// (https://grpc.github.io/grpc/core/md_doc_statuscodes.html). ToGrpc cuts messages after 4 KiB, so
// that an error never exceeds the size limit of HTTP/2 trailers. A time to wait (RetryAfterOf)
// becomes a google.rpc.RetryInfo among the error's details.
grpc::Status ToGrpc(const Status& status);
Status FromGrpc(const grpc::Status& status);

}  // namespace baton
