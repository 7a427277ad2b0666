#include "common/rpc/rpc_status.h"

#include <algorithm>
#include <string>

namespace baton {
namespace {

constexpr size_t kMaxMessage = 4096;

}  // namespace

grpc::Status ToGrpc(const Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()),
                      std::string(Message(status).substr(0, kMaxMessage)));
}

Status FromGrpc(const grpc::Status& status) {
  if (status.ok()) return OkStatus();
  const int code = status.error_code();
  const bool known = code > 0 && code <= static_cast<int>(StatusCode::kUnauthenticated);
  return Status(known ? static_cast<StatusCode>(code) : StatusCode::kUnknown,
                status.error_message());
}

}  // namespace baton
