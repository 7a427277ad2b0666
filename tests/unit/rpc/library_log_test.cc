#include "common/rpc/library_log.h"

#include <gmock/gmock.h>
#include <google/protobuf/stubs/logging.h>
#include <grpc/support/log.h>
#include <gtest/gtest.h>

#include "common/log/log.h"
#include "common/rpc/rpc_server.h"

namespace baton {
namespace {

TEST(LibraryLogTest, WhatLibrariesSayGoesToTheLog) {
  testing::internal::CaptureStderr();
  EXPECT_FALSE(RpcServer::Start("127.0.0.1:0", {}).ok());  // gRPC logs that there is no service
  gpr_log(GPR_ERROR, "number %d", 7);
  GOOGLE_LOG(WARNING) << "number 8";
  EXPECT_TRUE(FlushLog(std::chrono::seconds(30)));
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_THAT(text, testing::HasSubstr("Z error grpc: number 7\n"));
  EXPECT_THAT(text, testing::EndsWith("Z warning protobuf: number 8\n"));
  EXPECT_THAT(text, testing::Not(testing::HasSubstr(".cc:"))) << "a line of a library's own making";
}

}  // namespace
}  // namespace baton
