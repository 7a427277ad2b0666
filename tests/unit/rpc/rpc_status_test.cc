#include "common/rpc/rpc_status.h"

#include <chrono>

#include <gtest/gtest.h>

#include "common/base/retry_after.h"
#include "proto/rpc_error.pb.h"

namespace baton {
namespace {

TEST(RpcStatus, EveryCodeSurvivesTheRoundTrip) {
  for (int code = 0; code <= 16; ++code) {
    const Status status(static_cast<StatusCode>(code), code == 0 ? "" : "what went wrong");
    EXPECT_EQ(FromGrpc(ToGrpc(status)), status) << code;
  }
}

TEST(RpcStatus, UnknownCodesBecomeUnknown) {
  const Status status = FromGrpc(grpc::Status(grpc::StatusCode::DO_NOT_USE, "odd"));
  EXPECT_EQ(status.code(), StatusCode::kUnknown);
  EXPECT_EQ(Message(status), "odd");
}

TEST(RpcStatus, LongMessagesAreCut) {
  const Status status(StatusCode::kInternal, std::string(100000, 'x'));
  EXPECT_EQ(ToGrpc(status).error_message().size(), 4096u);
}

TEST(RpcStatus, ATimeToWaitBecomesRetryInfo) {
  const Status busy(StatusCode::kResourceExhausted, "busy");
  EXPECT_EQ(ToGrpc(busy).error_details(), "");
  const grpc::Status status = ToGrpc(WithRetryAfter(busy, std::chrono::milliseconds(2500)));
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  rpc::ErrorStatus details;
  ASSERT_TRUE(details.ParseFromString(status.error_details()));
  EXPECT_EQ(details.code(), 8);
  EXPECT_EQ(details.message(), "busy");
  ASSERT_EQ(details.details_size(), 1);
  EXPECT_EQ(details.details(0).type_url(), "type.googleapis.com/google.rpc.RetryInfo");
  rpc::RetryInfo retry;
  ASSERT_TRUE(retry.ParseFromString(details.details(0).value()));
  EXPECT_EQ(retry.retry_delay().seconds(), 2);
  EXPECT_EQ(retry.retry_delay().nanos(), 500'000'000);
}

}  // namespace
}  // namespace baton
