#include "common/security/jwt.h"

#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/rsa.h>

#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "common/security/digest.h"

namespace baton {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

constexpr int64_t kNow = 1'800'000'000;

// A private key that signs tokens, and its public part as a JWK.
class Signer final {
 public:
  static Signer Rsa(unsigned bits = 2048) { return Signer("RS256", EVP_RSA_gen(bits)); }
  static Signer Ec() { return Signer("ES256", EVP_EC_gen("P-256")); }
  static Signer Ed() { return Signer("EdDSA", EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519")); }

  const std::string& algorithm() const { return algorithm_; }
  Json Jwk(const std::string& id = "one") const {
    Json jwk = {{"kid", id}, {"use", "sig"}};
    if (algorithm_ == "RS256") {
      jwk["kty"] = "RSA";
      jwk["n"] = Number(OSSL_PKEY_PARAM_RSA_N, 0);
      jwk["e"] = Number(OSSL_PKEY_PARAM_RSA_E, 0);
    } else if (algorithm_ == "ES256") {
      jwk["kty"] = "EC";
      jwk["crv"] = "P-256";
      jwk["x"] = Number(OSSL_PKEY_PARAM_EC_PUB_X, 32);
      jwk["y"] = Number(OSSL_PKEY_PARAM_EC_PUB_Y, 32);
    } else {
      std::string raw(32, '\0');
      size_t size = raw.size();
      EVP_PKEY_get_raw_public_key(key_.get(), reinterpret_cast<unsigned char*>(raw.data()), &size);
      jwk["kty"] = "OKP";
      jwk["crv"] = "Ed25519";
      jwk["x"] = Base64Url(raw);
    }
    return jwk;
  }
  std::string Token(const Json& claims, const Json& more_header = Json::object()) const {
    Json header = {{"alg", algorithm_}, {"kid", "one"}};
    header.update(more_header);
    const std::string bytes = Base64Url(header.dump()) + "." + Base64Url(claims.dump());
    return bytes + "." + Base64Url(Sign(bytes));
  }

 private:
  struct Free {
    void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
    void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
  };
  Signer(std::string algorithm, EVP_PKEY* key) : algorithm_(std::move(algorithm)), key_(key) {}

  std::string Number(const char* name, int width) const {
    BIGNUM* number = nullptr;
    EVP_PKEY_get_bn_param(key_.get(), name, &number);
    std::string bytes(static_cast<size_t>(width > 0 ? width : BN_num_bytes(number)), '\0');
    BN_bn2binpad(
        number, reinterpret_cast<unsigned char*>(bytes.data()), static_cast<int>(bytes.size()));
    BN_free(number);
    return Base64Url(bytes);
  }
  std::string Sign(const std::string& bytes) const {
    const std::unique_ptr<EVP_MD_CTX, Free> context(EVP_MD_CTX_new());
    EVP_DigestSignInit(context.get(),
                       nullptr,
                       algorithm_ == "EdDSA" ? nullptr : EVP_sha256(),
                       nullptr,
                       key_.get());
    size_t size = 1024;
    std::string signature(size, '\0');
    EVP_DigestSign(context.get(),
                   reinterpret_cast<unsigned char*>(signature.data()),
                   &size,
                   reinterpret_cast<const unsigned char*>(bytes.data()),
                   bytes.size());
    signature.resize(size);
    return algorithm_ == "ES256" ? FromDer(signature) : signature;
  }
  static std::string FromDer(const std::string& der) {
    const auto* at = reinterpret_cast<const unsigned char*>(der.data());
    ECDSA_SIG* signature = d2i_ECDSA_SIG(nullptr, &at, static_cast<long>(der.size()));
    std::string raw(64, '\0');
    auto* out = reinterpret_cast<unsigned char*>(raw.data());
    BN_bn2binpad(ECDSA_SIG_get0_r(signature), out, 32);
    BN_bn2binpad(ECDSA_SIG_get0_s(signature), out + 32, 32);
    ECDSA_SIG_free(signature);
    return raw;
  }

  std::string algorithm_;
  std::unique_ptr<EVP_PKEY, Free> key_;
};

JwtKeys KeysOf(const std::vector<Json>& list, JwtPolicy policy = {}) {
  return JwtKeys::Parse(Json{{"keys", list}}.dump(), std::move(policy)).value();
}
Json Claims() {
  return {{"sub", "ann@example.com"}, {"exp", kNow + 600}};
}
std::string Refusal(const JwtKeys& keys, const std::string& token) {
  const auto claims = keys.Verify(token, kNow);
  EXPECT_EQ(claims.status().code(), StatusCode::kUnauthenticated) << token;
  EXPECT_THAT(std::string(Message(claims.status())), Not(HasSubstr(token)));
  return std::string(Message(claims.status()));
}

TEST(Jwt, VerifiesEachAlgorithm) {
  for (const Signer& signer : {Signer::Rsa(), Signer::Ec(), Signer::Ed()}) {
    const JwtKeys keys = KeysOf({signer.Jwk()});
    const auto claims = keys.Verify(signer.Token(Claims()), kNow);
    ASSERT_TRUE(claims.ok()) << signer.algorithm() << claims.status();
    EXPECT_EQ(claims->subject, "ann@example.com");
    EXPECT_EQ(claims->tenant, "ann@example.com");
    // Each changed byte of the payload or of the signature is noticed.
    std::string token = signer.Token(Claims());
    for (const size_t at : {token.find('.') + 5, token.rfind('.') + 5}) {
      std::string changed = token;
      changed[at] = changed[at] == 'A' ? 'B' : 'A';
      EXPECT_FALSE(keys.Verify(changed, kNow).ok());
    }
  }
}

TEST(Jwt, ReadsTheTenant) {
  const Signer signer = Signer::Ed();
  Json claims = Claims();
  claims["tenant"] = "acme";
  EXPECT_EQ(KeysOf({signer.Jwk()}).Verify(signer.Token(claims), kNow)->tenant, "acme");
}

TEST(Jwt, TheKeyDecidesTheAlgorithm) {
  const Signer rsa = Signer::Rsa();
  const Signer ec = Signer::Ec();
  const JwtKeys keys = KeysOf({rsa.Jwk()});
  const std::string payload = Base64Url(Claims().dump());
  for (const char* algorithm : {"none", "None", "HS256", "RS512", "ES256", ""}) {
    const std::string bytes = Base64Url(Json{{"alg", algorithm}}.dump()) + "." + payload;
    EXPECT_THAT(Refusal(keys, bytes + "."), HasSubstr("no key of security.jwks_file"));
    // HMAC with the public key as the secret.
    const Digest256 mac = HmacSha256(rsa.Jwk()["n"].get<std::string>(), bytes);
    Refusal(keys, bytes + "." + Base64Url(BytesOf(mac)));
  }
  Refusal(keys, ec.Token(Claims()));
  Refusal(keys, rsa.Token(Claims(), {{"alg", "ES256"}}));
  Refusal(keys, rsa.Token(Claims(), {{"kid", "two"}}));
  Refusal(keys, rsa.Token(Claims(), {{"crit", {"x"}}, {"x", 1}}));
  EXPECT_TRUE(KeysOf({ec.Jwk(), rsa.Jwk()}).Verify(rsa.Token(Claims()), kNow).ok());
}

TEST(Jwt, ChecksTimes) {
  const Signer signer = Signer::Ed();
  const JwtKeys keys = KeysOf({signer.Jwk()});
  const auto with = [&](const char* name, const Json& value) {
    Json claims = Claims();
    claims[name] = value;
    return signer.Token(claims);
  };
  EXPECT_THAT(Refusal(keys, with("exp", kNow - 60)), HasSubstr("expired"));
  EXPECT_TRUE(keys.Verify(with("exp", kNow - 59), kNow).ok());  // clocks differ
  EXPECT_THAT(Refusal(keys, with("nbf", kNow + 61)), HasSubstr("not valid yet"));
  EXPECT_TRUE(keys.Verify(with("nbf", kNow + 60), kNow).ok());
  EXPECT_THAT(Refusal(keys, with("exp", "tomorrow")), HasSubstr("not a time"));
  EXPECT_THAT(Refusal(keys, signer.Token({{"sub", "a"}})), HasSubstr("no \"exp\""));
}

TEST(Jwt, ChecksIssuerAudienceAndNames) {
  const Signer signer = Signer::Ed();
  const JwtKeys keys = KeysOf({signer.Jwk()}, {"https://issuer", "baton"});
  Json claims = Claims();
  EXPECT_THAT(Refusal(keys, signer.Token(claims)), HasSubstr("jwt_issuer"));
  claims["iss"] = "https://issuer";
  EXPECT_THAT(Refusal(keys, signer.Token(claims)), HasSubstr("jwt_audience"));
  claims["aud"] = "other";
  EXPECT_THAT(Refusal(keys, signer.Token(claims)), HasSubstr("jwt_audience"));
  claims["aud"] = {"other", "baton"};
  EXPECT_TRUE(keys.Verify(signer.Token(claims), kNow).ok());
  claims["aud"] = "baton";
  EXPECT_TRUE(keys.Verify(signer.Token(claims), kNow).ok());
  for (const Json& bad :
       {Json(""), Json(7), Json("a b"), Json("a/b"), Json(std::string(200, 'x'))}) {
    claims["sub"] = bad;
    EXPECT_THAT(Refusal(keys, signer.Token(claims)), HasSubstr("\"sub\"")) << bad;
  }
  claims["sub"] = "a";
  claims["tenant"] = "";
  EXPECT_THAT(Refusal(keys, signer.Token(claims)), HasSubstr("\"tenant\""));
}

TEST(Jwt, RefusesMalformedTokens) {
  const Signer signer = Signer::Ed();
  const JwtKeys keys = KeysOf({signer.Jwk()});
  for (const std::string& bad : {std::string(".."),
                                 std::string("a.b"),
                                 std::string("!.!.!"),
                                 Base64Url("[]") + "..",
                                 std::string(10'000, 'a') + ".b.c"}) {
    EXPECT_FALSE(keys.Verify(bad, kNow).ok()) << bad.substr(0, 20);
  }
  EXPECT_TRUE(JwtKeys::IsToken("a.b.c"));
  EXPECT_FALSE(JwtKeys::IsToken("baton-abc"));
}

TEST(Jwt, RefusesWeakAndMalformedKeySets) {
  const auto error = [](const Json& set) {
    const auto keys = JwtKeys::Parse(set.dump(), {});
    return keys.ok() ? "" : std::string(Message(keys.status()));
  };
  EXPECT_THAT(error({}), HasSubstr("\"keys\""));
  EXPECT_THAT(error({{"keys", Json::array()}}), HasSubstr("no key"));
  EXPECT_THAT(error({{"keys", {Signer::Rsa(1024).Jwk()}}}),
              HasSubstr("keys[0]: an RSA key of 1024"));
  Json point = Signer::Ec().Jwk();
  point["y"] = point["x"];
  EXPECT_THAT(error({{"keys", {point}}}), HasSubstr("not a valid ES256 key"));
  Json secret = {{"kty", "oct"}, {"k", "c2VjcmV0"}};
  EXPECT_THAT(error({{"keys", {secret}}}), HasSubstr("no key"));
  Json encryption = Signer::Rsa().Jwk();
  encryption["use"] = "enc";
  EXPECT_THAT(error({{"keys", {encryption}}}), HasSubstr("no key"));
}

}  // namespace
}  // namespace baton
