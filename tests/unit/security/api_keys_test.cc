#include "common/security/api_keys.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace baton {
namespace {

using ::testing::HasSubstr;

const std::string kHex(64, 'a');

std::string File(const std::string& entry) {
  return "{\"keys\": [" + entry + "]}";
}

std::string ErrorOf(const std::string& text) {
  const auto keys = ApiKeys::Parse(text);
  return keys.ok() ? "" : std::string(Message(keys.status()));
}

ApiKey KeyNamed(const std::string& name, const std::string& secret) {
  ApiKey key;
  key.name = name;
  key.tenant = "acme";
  key.digest = Sha256(secret);
  return key;
}

TEST(ApiKeys, ReadsWhatItWrites) {
  ApiKeys keys;
  ApiKey full = KeyNamed("full", "one");
  full.expires_s = ParseExpiry("2027-01-31T12:30:00Z").value();
  full.limits = {4, 0.5, 1000, 65536, 2000, 100};
  ASSERT_TRUE(keys.Add(full).ok());
  ASSERT_TRUE(keys.Add(KeyNamed("plain", "two")).ok());
  ASSERT_TRUE(keys.Revoke("acme/plain").ok());
  const std::string text = keys.ToJson();
  const auto read = ApiKeys::Parse(text);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->ToJson(), text);
  const ApiKey* found = read->Find("one");
  ASSERT_NE(found, nullptr);
  EXPECT_EQ(found->id(), "acme/full");
  EXPECT_EQ(FormatExpiry(*found->expires_s), "2027-01-31T12:30:00Z");
  EXPECT_EQ(found->limits.requests_in_flight, 4);
  EXPECT_EQ(found->limits.requests_per_second, 0.5);
  EXPECT_EQ(found->limits.output_tokens, 100);
  EXPECT_TRUE(read->Find("two")->revoked);
  EXPECT_EQ(read->Find("three"), nullptr);
  EXPECT_EQ(read->FindId("acme/plain")->name, "plain");
}

TEST(ApiKeys, TheTenantIsTheNameByDefault) {
  const auto keys = ApiKeys::Parse(File(R"({"name": "ci", "sha256": ")" + kHex + "\"}"));
  ASSERT_TRUE(keys.ok()) << keys.status();
  EXPECT_EQ(keys->keys().front().id(), "ci/ci");
}

TEST(ApiKeys, RefusesWrongFilesAndNamesTheEntry) {
  const std::string hash = "\"sha256\": \"" + kHex + "\"";
  EXPECT_THAT(ErrorOf("[]"), HasSubstr("one member \"keys\""));
  EXPECT_THAT(ErrorOf("{\"keys\": {}}"), HasSubstr("an array"));
  EXPECT_THAT(ErrorOf("{\"keys\": [], \"more\": 1}"), HasSubstr("one member"));
  EXPECT_THAT(ErrorOf(File("1")), HasSubstr("keys[0]: must be an object"));
  EXPECT_THAT(ErrorOf(File("{\"name\": \"a\"}")), HasSubstr("sha256 is missing"));
  EXPECT_THAT(ErrorOf(File("{" + hash + "}")), HasSubstr("name is \"\""));
  EXPECT_THAT(ErrorOf(File(R"({"name": "a/b", )" + hash + "}")), HasSubstr("name is \"a/b\""));
  EXPECT_THAT(ErrorOf(File(R"({"name": "a", "tenant": "b\nc", )" + hash + "}")),
              HasSubstr("tenant is"));
  EXPECT_THAT(ErrorOf(File(R"({"name": "a", "sha256": "ab"})")), HasSubstr("64 hex digits"));
  EXPECT_THAT(ErrorOf(File(R"({"name": "a", "key": "x", )" + hash + "}")),
              HasSubstr("\"key\" is unknown"));
  EXPECT_THAT(ErrorOf(File(R"({"name": "a", "expires": "soon", )" + hash + "}")),
              HasSubstr("such as 2027-01-31"));
  EXPECT_THAT(ErrorOf(File(R"({"name": "a", "revoked": 1, )" + hash + "}")),
              HasSubstr("true or false"));
  for (const char* bad : {"-1", "0", "1.5", "1e300", "\"4\"", "null"}) {
    EXPECT_THAT(ErrorOf(File(R"({"name": "a", "limits": {"body_bytes": )" + std::string(bad) +
                             "}, " + hash + "}")),
                HasSubstr("limits.body_bytes must be"))
        << bad;
  }
  EXPECT_THAT(ErrorOf(File(R"({"name": "a", "limits": {"x": 1}, )" + hash + "}")),
              HasSubstr("limits.x is unknown"));
  EXPECT_THAT(ErrorOf(File(R"({"name": "a", )" + hash + R"(}, {"name": "a", )" + hash + "}")),
              HasSubstr("keys[1]: there is already a key \"a/a\""));
  EXPECT_THAT(ErrorOf(File(R"({"name": "a", )" + hash + R"(}, {"name": "b", )" + hash + "}")),
              HasSubstr("the same sha256 as \"a/a\""));
}

TEST(ApiKeys, GeneratesDifferentKeysOfFullStrength) {
  const std::string key = ApiKeys::Generate();
  EXPECT_EQ(key.size(), 49u);
  EXPECT_EQ(key.rfind("baton-", 0), 0u);
  EXPECT_NE(key, ApiKeys::Generate());
}

TEST(ApiKeys, ALongKeyIsNotHashed) {
  EXPECT_EQ(ApiKeys().Find(std::string(1 << 20, 'x')), nullptr);
}

TEST(Expiry, ReadsDatesAndTimes) {
  EXPECT_EQ(ParseExpiry("1970-01-02").value(), 86400);
  EXPECT_EQ(ParseExpiry("1970-01-01T00:00:10Z").value(), 10);
  EXPECT_FALSE(ParseExpiry("2027-13-01").ok());
  EXPECT_FALSE(ParseExpiry("").ok());
}

}  // namespace
}  // namespace baton
