#include "common/rpc/rpc_status.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace baton
