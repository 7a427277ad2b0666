#include <sys/stat.h>

#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/commands.h"
#include "cli/router_endpoint.h"
#include "common/security/api_keys.h"
#include "tests/support/temporary_folder.h"

namespace baton {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class KeyCommandTest : public ::testing::Test {
 protected:
  int Run(std::vector<std::string> words) {
    words.insert(words.begin(), "baton");
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    const int status = RunBaton(static_cast<int>(arguments.size()), arguments.data());
    output_ = testing::internal::GetCapturedStdout();
    errors_ = testing::internal::GetCapturedStderr();
    return status;
  }
  std::string Content() const {
    std::ifstream file(path_);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  TemporaryFolder folder_;
  const std::string path_ = folder_.path() + "/keys.json";
  std::string output_;
  std::string errors_;
};

TEST_F(KeyCommandTest, AddsListsAndRevokesKeys) {
  ASSERT_EQ(Run({"key",
                 "add",
                 "ci",
                 "--tenant",
                 "acme",
                 "--file",
                 path_,
                 "--requests-per-second",
                 "5",
                 "--expires",
                 "2099-01-31"}),
            0)
      << errors_;
  const std::string key = output_.substr(0, output_.find('\n'));
  EXPECT_THAT(Content(), Not(HasSubstr(key)));
  struct stat file {};
  ASSERT_EQ(::stat(path_.c_str(), &file), 0);
  EXPECT_EQ(file.st_mode & 0777, 0600u);
  const auto keys = ApiKeys::Load(path_);
  ASSERT_TRUE(keys.ok()) << keys.status();
  ASSERT_NE(keys->Find(key), nullptr);
  EXPECT_EQ(keys->Find(key)->limits.requests_per_second, 5);

  ASSERT_EQ(Run({"key", "add", "other", "--file", path_}), 0) << errors_;
  EXPECT_EQ(Run({"key", "add", "other", "--file", path_}), 1);
  EXPECT_THAT(errors_, HasSubstr("already a key \"other/other\""));
  ASSERT_EQ(Run({"key", "revoke", "other", "--file", path_}), 0) << errors_;
  ASSERT_EQ(Run({"key", "list", "--file", path_}), 0);
  EXPECT_THAT(output_, HasSubstr("acme/ci      2099-01-31T00:00:00Z  valid"));
  EXPECT_THAT(output_, HasSubstr("other/other  never                 revoked"));
  EXPECT_EQ(Run({"key", "revoke", "nobody", "--file", path_}), 1);
  EXPECT_THAT(errors_, HasSubstr("nobody/nobody"));
}

TEST_F(KeyCommandTest, DoesNotTouchAWrongFile) {
  std::ofstream(path_) << "not JSON";
  EXPECT_EQ(Run({"key", "add", "ci", "--file", path_}), 1);
  EXPECT_EQ(Content(), "not JSON");
  EXPECT_EQ(Run({"key", "list", "--file", path_ + "/absent"}), 1);
}

TEST_F(KeyCommandTest, AnEndpointReadsItsKeyFile) {
  const std::string file = folder_.Write("key", "baton-abc\n");
  EndpointFlags flags;
  flags.key_file = file;
  EXPECT_EQ(EndpointOf("10.0.0.1:7080", flags, kClientKeyFile)->key, "baton-abc");
  flags.key_file = folder_.Write("bad", "two keys\n");
  EXPECT_FALSE(EndpointOf("10.0.0.1:7080", flags, kClientKeyFile).ok());
  flags.key_file = folder_.path() + "/absent";
  EXPECT_FALSE(EndpointOf("10.0.0.1:7080", flags, kClientKeyFile).ok());
  flags.key_file.clear();
  flags.ca_file = file;
  EXPECT_TRUE(EndpointOf("10.0.0.1:7080", flags, "absent")->tls);
}

}  // namespace
}  // namespace baton
