#include "cli/local_cluster.h"

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temporary_folder.h"

namespace baton {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Programs that replace Baton's own.
class LocalClusterStartTest : public ::testing::Test {
 protected:
  void Program(const std::string& name, const std::string& script) {
    folder_.Write(name, "#!/bin/sh\n" + script);
    std::filesystem::permissions(folder_.path() + "/" + name, std::filesystem::perms::owner_all);
  }

  std::string StartError() {
    LocalClusterOptions options;
    options.binary_folder = options.log_folder = folder_.path();
    options.model = "model";
    options.workers.decode = 1;
    const auto cluster = LocalCluster::Start(options, std::chrono::seconds(60));
    return cluster.ok() ? "no error" : std::string(Message(cluster.status()));
  }

  const TemporaryFolder folder_;
};

TEST_F(LocalClusterStartTest, ShowsTheLastLinesOfAProcessThatDied) {
  Program("baton-router",
          "i=0; while [ $i -lt 1000 ]; do i=$((i+1)); echo line $i >&2; done\n"
          "echo the model is not there >&2\n"
          "exit 3\n");
  EXPECT_THAT(StartError(),
              AllOf(HasSubstr("router: "),
                    HasSubstr("/router.log ends with:\n    line 994\n"),
                    HasSubstr("\n    line 1000\n    the model is not there"),
                    Not(HasSubstr("line 993"))));
}

TEST_F(LocalClusterStartTest, SaysWhichProcessThatWas) {
  Program("baton-router",
          "echo 'ready {\"http\":\"127.0.0.1:1\",\"grpc\":\"127.0.0.1:1\","
          "\"workers\":\"127.0.0.1:1\",\"admin\":\"127.0.0.1:1\"}'\n"
          "exec sleep 60\n");
  Program("baton-decode", "echo engine: block_tokens is 8 >&2; exit 1\n");
  EXPECT_THAT(StartError(),
              AllOf(HasSubstr("decode-0: "),
                    HasSubstr("/decode-0.log ends with:\n    engine: block_tokens is 8")));
}

}  // namespace
}  // namespace baton
