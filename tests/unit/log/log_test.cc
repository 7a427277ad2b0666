#include "common/log/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace baton {
namespace {

using ::testing::MatchesRegex;
using ::testing::internal::CaptureStderr;

// Does not compile unless a logger is initialised before all static constructors.
constinit const Logger kModuleLog("constant");

std::string CapturedLog() {
  EXPECT_TRUE(FlushLog(std::chrono::seconds(30)));
  return ::testing::internal::GetCapturedStderr();
}

TEST(LogTest, ALineHasTimeLevelModuleAndText) {
  ConfigureLogging({});
  CaptureStderr();
  Logger("router").Info("request {} took {} ms", 7, 1.5);
  EXPECT_THAT(CapturedLog(),
              MatchesRegex("[0-9-]+T[0-9:]+\\.[0-9]+Z info router: request 7 took 1.5 ms\n"));
}

TEST(LogTest, LoggersOfFilesAreConstants) {
  ConfigureLogging({LogLevel::kWarning, {}});
  CaptureStderr();
  kModuleLog.Info("unseen");
  kModuleLog.Warning("seen {}", 1);
  kModuleLog.Warning("seen {}", 2);
  EXPECT_THAT(CapturedLog(),
              MatchesRegex("[^\n]* warning constant: seen 1\n[^\n]* warning constant: seen 2\n"));
  ConfigureLogging({});
}

TEST(LogTest, AModuleMayHaveItsOwnLevel) {
  const Logger early("engine");
  ConfigureLogging({LogLevel::kWarning, {{"engine", LogLevel::kDebug}, {"kv", LogLevel::kOff}}});
  const Logger late("kv");
  EXPECT_TRUE(early.Enabled(LogLevel::kDebug));
  EXPECT_FALSE(late.Enabled(LogLevel::kError));
  EXPECT_FALSE(Logger("other").Enabled(LogLevel::kInfo));
  EXPECT_TRUE(Logger("other").Enabled(LogLevel::kWarning));
  CaptureStderr();
  Logger("other").Info("unseen");
  EXPECT_EQ(CapturedLog(), "");
  ConfigureLogging({});
}

TEST(LogTest, OtherTextKeepsItsPlaceAmongTheLines) {
  CaptureStderr();
  Logger("other").Warning("before");
  WriteStderr("as it is\n");
  Logger("other").Warning("after");
  EXPECT_THAT(CapturedLog(),
              MatchesRegex("[^\n]*warning other: before\nas it is\n[^\n]*warning other: after\n"));
}

TEST(LogTest, LevelsParse) {
  EXPECT_EQ(*ParseLogLevel("debug"), LogLevel::kDebug);
  EXPECT_EQ(*ParseLogLevel("off"), LogLevel::kOff);
  EXPECT_EQ(ParseLogLevel("loud").status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace baton
