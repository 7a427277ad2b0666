#include "common/rpc/rpc_status.h"

#include <algorithm>
#include <string>

#include "common/base/retry_after.h"
#include "proto/rpc_error.pb.h"

namespace baton {
namespace {

constexpr size_t kMaxMessage = 4096;
constexpr const char* kRetryInfo = "type.googleapis.com/google.rpc.RetryInfo";

// The content of the trailer grpc-status-details-bin for an error that says when to try again.
std::string DetailsOf(const Status& status, std::string_view message, Duration wait) {
  rpc::RetryInfo retry;
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(wait);
  retry.mutable_retry_delay()->set_seconds(seconds.count());
  retry.mutable_retry_delay()->set_nanos(static_cast<int32_t>((wait - seconds).count()));
  rpc::ErrorStatus details;
  details.set_code(static_cast<int32_t>(status.code()));
  details.set_message(std::string(message));
  google::protobuf::Any& any = *details.add_details();
  any.set_type_url(kRetryInfo);
  any.set_value(retry.SerializeAsString());
  return details.SerializeAsString();
}

}  // namespace

grpc::Status ToGrpc(const Status& status) {
  if (status.ok()) return grpc::Status::OK;
  const auto code = static_cast<grpc::StatusCode>(status.code());
  const std::string message(Message(status).substr(0, kMaxMessage));
  const std::optional<Duration> wait = RetryAfterOf(status);
  if (!wait.has_value()) return grpc::Status(code, message);
  return grpc::Status(code, message, DetailsOf(status, message, *wait));
}

Status FromGrpc(const grpc::Status& status) {
  if (status.ok()) return OkStatus();
  const int code = status.error_code();
  const bool known = code > 0 && code <= static_cast<int>(StatusCode::kUnauthenticated);
  return Status(known ? static_cast<StatusCode>(code) : StatusCode::kUnknown,
                status.error_message());
}

}  // namespace baton
