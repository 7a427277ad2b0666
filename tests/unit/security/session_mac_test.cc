#include <string>

#include <absl/strings/escaping.h>
#include <gtest/gtest.h>

#include "common/security/digest.h"
#include "common/security/gmac.h"
#include "common/security/secret_proof.h"

namespace baton {
namespace {

std::span<const std::byte> Bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

MacTag TagOf(MessageMac& mac, std::string_view message) {
  mac.Update(Bytes(message));
  return mac.Finish();
}

// RFC 5869, test case 1; the first block of its output.
TEST(HkdfTest, GivesTheKeysOfTheRfc) {
  const std::string secret(22, '\x0b');
  const std::string salt = absl::HexStringToBytes("000102030405060708090a0b0c");
  const std::string info = absl::HexStringToBytes("f0f1f2f3f4f5f6f7f8f9");
  const Digest256 key = HkdfSha256(secret, salt, info);
  EXPECT_EQ(absl::BytesToHexString({reinterpret_cast<const char*>(key.data()), key.size()}),
            "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf");
}

// The GCM specification's test case 13 (no text, no additional data) is message 0 of a zero key.
TEST(GmacTest, GivesTheTagOfTheSpecification) {
  Gmac mac(std::string(Gmac::kKeyBytes, '\0'));
  const MacTag tag = mac.Finish();
  EXPECT_EQ(absl::BytesToHexString({reinterpret_cast<const char*>(tag.data()), tag.size()}),
            "530f8afbc74536b9a963b4f1c4cb738b");
}

TEST(GmacTest, DependsOnKeyPlaceAndEveryByteButNotOnTheParts) {
  const std::string key(Gmac::kKeyBytes, 'k');
  Gmac a(key);
  Gmac b(key);
  const MacTag first = TagOf(a, "message");
  b.Update(Bytes("mess"));
  b.Update(Bytes(""));
  b.Update(Bytes("age"));
  EXPECT_EQ(first, b.Finish());
  EXPECT_NE(first, TagOf(a, "message")) << "the second message has the tag of the first one";
  EXPECT_NE(TagOf(a, "message"), TagOf(b, "messagf"));
  Gmac other(std::string(Gmac::kKeyBytes, 'l'));
  EXPECT_NE(first, TagOf(other, "message"));
}

TEST(SessionMacTest, BothEndsHaveTheSameKeysAndEachDirectionItsOwn) {
  const auto secret = std::make_shared<const ClusterSecret>(
      ClusterSecret::Parse("the-secret-of-the-cluster-number-1").value());
  const auto tags = [&](std::string_view purpose) {
    SecretProof dialler(secret, PeerSide::kDialler, purpose);
    SecretProof listener(secret, PeerSide::kListener, purpose);
    const auto challenge = listener.OnMessage(dialler.Begin());
    const auto proof = listener.OnMessage(*dialler.OnMessage(*challenge));
    EXPECT_TRUE(dialler.OnMessage(*proof).ok());
    std::vector<MacTag> all;
    for (const PeerSide from : {PeerSide::kDialler, PeerSide::kListener}) {
      all.push_back(TagOf(*dialler.MakeMac(from), "m"));
      EXPECT_EQ(all.back(), TagOf(*listener.MakeMac(from), "m"));
    }
    return all;
  };
  const auto first = tags("KvData");
  EXPECT_NE(first[0], first[1]);
  const auto second = tags("KvData");
  EXPECT_NE(first[0], second[0]) << "two connections have the same key";
}

}  // namespace
}  // namespace baton
