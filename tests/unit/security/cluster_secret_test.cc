#include "common/security/cluster_secret.h"

#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/security/digest.h"

namespace baton {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string kA(32, 'a');
const std::string kB(40, 'b');

std::string ErrorOf(const std::string& text) {
  const auto secret = ClusterSecret::Parse(text);
  return secret.ok() ? "" : std::string(Message(secret.status()));
}

TEST(Digest, MatchesPublishedVectors) {
  // FIPS 180-2, appendix B.1, and RFC 4231, test case 2.
  const Digest256 sha = Sha256("abc");
  EXPECT_EQ(sha[0], 0xba);
  EXPECT_EQ(sha[31], 0xad);
  const Digest256 hmac = HmacSha256("Jefe", "what do ya want for nothing?");
  EXPECT_EQ(hmac[0], 0x5b);
  EXPECT_EQ(hmac[1], 0xdc);
  EXPECT_EQ(hmac[31], 0x43);
}

TEST(Digest, ComparesWholeSecrets) {
  EXPECT_TRUE(EqualSecrets("abc", "abc"));
  EXPECT_FALSE(EqualSecrets("abc", "abd"));
  EXPECT_FALSE(EqualSecrets("abc", "ab"));
  EXPECT_NE(RandomBytes(32), RandomBytes(32));
}

TEST(ClusterSecret, ReadsOneSecretPerLine) {
  EXPECT_THAT(ClusterSecret::Parse(kA)->accepted(), ElementsAre(kA));
  const auto both = ClusterSecret::Parse("\r\n" + kA + " \r\n\n" + kB + "\n");
  ASSERT_TRUE(both.ok()) << both.status();
  EXPECT_EQ(both->own(), kA);
  EXPECT_THAT(both->accepted(), ElementsAre(kA, kB));
}

TEST(ClusterSecret, RefusesWeakAndMalformedSecretsWithoutShowingThem) {
  EXPECT_THAT(ErrorOf(""), HasSubstr("openssl rand"));
  EXPECT_THAT(ErrorOf("\n\n"), HasSubstr("no secret"));
  EXPECT_THAT(ErrorOf(kA + "\nhunter2\n"), HasSubstr("line 2 has 7 characters"));
  EXPECT_THAT(ErrorOf("hunter2"), Not(HasSubstr("hunter2")));
  EXPECT_THAT(ErrorOf(kA + " " + kA), HasSubstr("line 1 has a character"));
  EXPECT_THAT(ErrorOf(kA + "\n" + kA + "\n" + kA + "\n" + kA + "\n" + kA),
              HasSubstr("more than 4"));
  EXPECT_THAT(ErrorOf(std::string(2000, 'x')), HasSubstr("2000 characters"));
}

TEST(ClusterSecret, GeneratesWhatItReads) {
  const std::string first = ClusterSecret::Generate();
  EXPECT_NE(first, ClusterSecret::Generate());
  EXPECT_TRUE(ClusterSecret::Parse(first).ok());
}

TEST(ClusterSecret, NamesTheFile) {
  const std::string path = ::testing::TempDir() + "cluster_secret_test";
  EXPECT_EQ(ClusterSecret::Load(path + "_absent").status().code(), StatusCode::kNotFound);
  std::ofstream(path) << "short";
  EXPECT_THAT(std::string(Message(ClusterSecret::Load(path).status())), HasSubstr(path));
}

}  // namespace
}  // namespace baton
