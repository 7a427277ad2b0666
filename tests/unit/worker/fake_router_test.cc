#include "tests/fakes/fake_router.h"

#include <stdexcept>

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

// When a test waits for something that does not come, that test must fail, and the others must run.
namespace baton {
namespace {

TEST(FakeRouter, WhatNeverComesEndsTheTest) {
  FakeRouter router(std::chrono::milliseconds(1));
  EXPECT_THROW(router.AwaitJoin("nobody"), std::runtime_error);
  EXPECT_THROW(router.AwaitEnd("nobody", 1), std::runtime_error);
  EXPECT_THROW(router.AwaitHeartbeat("nobody", [](const auto&) { return false; }),
               std::runtime_error);
  EXPECT_THROW(router.Send("nobody", {}), std::runtime_error);
}

TEST(FakeRouter, AnotherEndThanExpectedOnlyFails) {
  FakeRouter::WorkerReports heard;
  EXPECT_EQ(heard.Ending(), "has not ended");
  EXPECT_NONFATAL_FAILURE(heard.Failure(), "it has not ended");
  heard.finished.emplace();
  EXPECT_NONFATAL_FAILURE(heard.Failure(), "it finished");
  heard.failed.emplace().set_message("no room");
  EXPECT_EQ(heard.Ending(), "failed: no room");
  EXPECT_EQ(heard.Failure().message(), "no room");
}

}  // namespace
}  // namespace baton
