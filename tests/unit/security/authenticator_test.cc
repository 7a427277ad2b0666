#include "common/security/authenticator.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/log/log.h"
#include "common/security/loopback.h"
#include "tests/support/captured_stderr.h"
#include "tests/support/temporary_folder.h"

namespace baton {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class AuthenticatorTest : public ::testing::Test {
 protected:
  void Write(const std::vector<ApiKey>& list) {
    ApiKeys keys;
    for (const ApiKey& key : list) ASSERT_TRUE(keys.Add(key).ok());
    WriteText(keys.ToJson());
  }
  // By a rename, as `baton key` does.
  void WriteText(const std::string& text) {
    std::ofstream(path_ + ".new") << text;
    std::filesystem::rename(path_ + ".new", path_);
  }
  static ApiKey Key(const std::string& name) {
    ApiKey key;
    key.name = name;
    key.tenant = "acme";
    key.digest = Sha256("secret of " + name);
    return key;
  }
  std::string Refusal(const std::string& key) {
    const auto caller = authenticator_->Authenticate(key);
    EXPECT_EQ(caller.status().code(), StatusCode::kUnauthenticated);
    EXPECT_THAT(std::string(Message(caller.status())), Not(HasSubstr("secret of")));
    return std::string(Message(caller.status()));
  }
  void Open() {
    authenticator_ =
        Authenticator::Open({path_, "", {}, false, std::chrono::milliseconds(20)}, refusals_)
            .value();
  }
  // Repeats `check` for as long as a changed file may stay unnoticed.
  static bool Eventually(const std::function<bool()>& check) {
    for (int i = 0; i < 500; ++i) {
      if (check()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
  }

  TemporaryFolder folder_;
  const std::string path_ = folder_.path() + "/keys.json";
  MetricsRegistry metrics_;
  Refusals refusals_{metrics_};
  std::unique_ptr<Authenticator> authenticator_;
};

TEST_F(AuthenticatorTest, RecognisesAKey) {
  Write({Key("a"), Key("b")});
  Open();
  const auto caller = authenticator_->Authenticate("secret of b");
  ASSERT_TRUE(caller.ok()) << caller.status();
  EXPECT_EQ(caller->id, "acme/b");
  EXPECT_EQ(caller->tenant, "acme");
  EXPECT_EQ(authenticator_->Find("acme/a")->id, "acme/a");
  EXPECT_FALSE(authenticator_->Find("acme/c").has_value());
}

TEST_F(AuthenticatorTest, RefusesOthersWithoutRepeatingTheKey) {
  ApiKey revoked = Key("gone");
  revoked.revoked = true;
  ApiKey expired = Key("late");
  expired.expires_s = 86400;
  ApiKey valid = Key("valid");
  valid.expires_s = ParseExpiry("2200-01-01").value();
  Write({revoked, expired, valid});
  Open();
  EXPECT_THAT(Refusal(""), HasSubstr("Authorization: Bearer"));
  EXPECT_THAT(Refusal("secret of nobody"), HasSubstr("not valid"));
  EXPECT_THAT(Refusal("secret of gone"), HasSubstr("\"acme/gone\" was revoked"));
  EXPECT_THAT(Refusal("secret of late"), HasSubstr("expired at 1970-01-02"));
  EXPECT_TRUE(authenticator_->Authenticate("secret of valid").ok());
}

TEST_F(AuthenticatorTest, RecognisesACertificateWhereTheyAreAccepted) {
  Write({Key("a")});
  Open();
  EXPECT_FALSE(authenticator_->Authenticate("", "alice").ok());
  EXPECT_FALSE(authenticator_->Find("alice/(certificate)").has_value());
  authenticator_ = Authenticator::Open({path_, "", {}, true}, refusals_).value();
  const auto caller = authenticator_->Authenticate("", "alice");
  ASSERT_TRUE(caller.ok()) << caller.status();
  EXPECT_EQ(caller->id, "alice/(certificate)");
  EXPECT_EQ(caller->tenant, "alice");
  EXPECT_EQ(authenticator_->Find(caller->id)->tenant, "alice");
  EXPECT_THAT(Refusal(""), HasSubstr("an API key or a client's certificate is missing"));
  // A key counts before the certificate, right or wrong.
  EXPECT_EQ(authenticator_->Authenticate("secret of a", "alice")->id, "acme/a");
  EXPECT_FALSE(authenticator_->Authenticate("secret of nobody", "alice").ok());
  for (const std::string& name : {std::string("a b"), std::string("a/b"), std::string(129, 'x')}) {
    const Status refused = authenticator_->Authenticate("", name).status();
    EXPECT_EQ(refused.code(), StatusCode::kUnauthenticated);
    EXPECT_THAT(std::string(Message(refused)), HasSubstr("the common name"));
  }
}

TEST_F(AuthenticatorTest, NoticesAChangedFile) {
  Write({Key("a")});
  Open();
  ASSERT_TRUE(authenticator_->Authenticate("secret of a").ok());
  Write({Key("b")});
  EXPECT_TRUE(Eventually([&] { return authenticator_->Authenticate("secret of b").ok(); }));
  EXPECT_FALSE(authenticator_->Authenticate("secret of a").ok());
}

TEST_F(AuthenticatorTest, KeepsTheKeysWhenTheChangedFileIsWrong) {
  Write({Key("a")});
  Open();
  WriteText("{");
  EXPECT_TRUE(Eventually([&] {
    authenticator_->Authenticate("x").IgnoreError();
    return metrics_.Serialize().find("baton_security_failed_reloads_total 1") != std::string::npos;
  }));
  EXPECT_TRUE(authenticator_->Authenticate("secret of a").ok());
}

TEST_F(AuthenticatorTest, AMissingFileIsAnError) {
  EXPECT_EQ(Authenticator::Open({path_ + "_absent", "", {}}, refusals_).status().code(),
            StatusCode::kNotFound);
}

TEST(Authorization, GivesTheKeyOfBearerAndBasic) {
  EXPECT_EQ(KeyOfAuthorization("Bearer abc"), "abc");
  EXPECT_EQ(KeyOfAuthorization("bearer   abc"), "abc");
  EXPECT_EQ(KeyOfAuthorization("Basic YW55OmtleQ=="), "key");  // any:key
  EXPECT_EQ(KeyOfAuthorization("Basic YW55"), "");
  EXPECT_EQ(KeyOfAuthorization("Basic !!"), "");
  EXPECT_EQ(KeyOfAuthorization("Digest x"), "");
  EXPECT_EQ(KeyOfAuthorization(""), "");
}

TEST(Refusals, CountsAllAndLogsEachHostOnce) {
  CapturedStderr log;
  MetricsRegistry metrics;
  Refusals refusals(metrics);
  for (int i = 0; i < 5; ++i) {
    refusals.Add("grpc", "10.0.0.1", Status(StatusCode::kUnauthenticated, "no key"));
  }
  const Status expired(StatusCode::kUnauthenticated, "expired");
  refusals.Add("grpc", "ipv4:10.0.0.1:77", expired);
  refusals.Add("grpc", "ipv6:%5B::1%5D:443", expired);
  refusals.Add("admin", "10.0.0.1:9", expired);
  EXPECT_THAT(metrics.Serialize(), HasSubstr("baton_security_refused_total{port=\"grpc\"} 7"));
  std::vector<RefusedPeer> latest = refusals.Latest(10);
  ASSERT_EQ(latest.size(), 3u);
  std::ranges::sort(latest, {}, &RefusedPeer::refusals);
  EXPECT_EQ(latest[2].port, "grpc");
  EXPECT_EQ(latest[2].address, "10.0.0.1");
  EXPECT_EQ(latest[2].refusals, 6);
  EXPECT_EQ(latest[2].reason, "expired");
  EXPECT_TRUE(latest[0].address == "[::1]" || latest[1].address == "[::1]");
  ASSERT_TRUE(FlushLog(std::chrono::seconds(5)));
  const std::string text = log.Text();
  const size_t first = text.find("grpc: refused 10.0.0.1: no key");
  ASSERT_NE(first, std::string::npos) << text;
  EXPECT_EQ(text.find("no key", first + 40), std::string::npos) << text;
  EXPECT_THAT(text, HasSubstr("admin: refused 10.0.0.1:9: expired"));
}

TEST(Refusals, ManyHostsFillNeitherMemoryNorLog) {
  CapturedStderr log;
  MetricsRegistry metrics;
  Refusals refusals(metrics);
  for (int i = 0; i < 2000; ++i) {
    refusals.Add("grpc",
                 fmt::format("10.0.{}.{}:1", i / 256, i % 256),
                 Status(StatusCode::kUnauthenticated, "no key"));
  }
  EXPECT_LE(refusals.Latest(10'000).size(), Refusals::kMaxPeers + 1);
  EXPECT_EQ(refusals.Latest(1)[0].address, "others");
  ASSERT_TRUE(FlushLog(std::chrono::seconds(5)));
  const std::string text = log.Text();
  size_t lines = 0;
  for (size_t at = text.find("refused"); at != std::string::npos;
       at = text.find("refused", at + 1)) {
    ++lines;
  }
  EXPECT_LE(lines, Refusals::kMaxPeers + 1);
}

TEST(Loopback, IsWhatOnlyThisMachineReaches) {
  for (const char* host : {"127.0.0.1", "127.3.2.1", "::1", "localhost", "::ffff:127.0.0.1"}) {
    EXPECT_TRUE(IsLoopback(host)) << host;
  }
  for (const char* host :
       {"0.0.0.0", "::", "10.0.0.1", "::ffff:10.0.0.1", "no-such-host.invalid"}) {
    EXPECT_FALSE(IsLoopback(host)) << host;
  }
}

}  // namespace
}  // namespace baton
