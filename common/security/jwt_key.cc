#include "common/security/jwt_key.h"

#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/param_build.h>

#include <absl/strings/escaping.h>
#include <nlohmann/json.hpp>

#include "common/base/free_with.h"

namespace baton {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxMemberBytes = 4096;
constexpr int kMinRsaBits = 2048;
constexpr int kMaxRsaBits = 8192;
constexpr size_t kCoordinateBytes = 32;  // of P-256 and Ed25519

using Number = std::unique_ptr<BIGNUM, FreeWith<BN_free>>;
using Builder = std::unique_ptr<OSSL_PARAM_BLD, FreeWith<OSSL_PARAM_BLD_free>>;
using Params = std::unique_ptr<OSSL_PARAM, FreeWith<OSSL_PARAM_free>>;
using Context = std::unique_ptr<EVP_PKEY_CTX, FreeWith<EVP_PKEY_CTX_free>>;
using Signature = std::unique_ptr<ECDSA_SIG, FreeWith<ECDSA_SIG_free>>;
using Digest = std::unique_ptr<EVP_MD_CTX, FreeWith<EVP_MD_CTX_free>>;

const unsigned char* Data(std::string_view bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

std::string TextOf(const Json& jwk, const char* name) {
  const auto found = jwk.find(name);
  return found != jwk.end() && found->is_string() ? found->get<std::string>() : "";
}

StatusOr<std::string> BytesOf(const Json& jwk, const char* name) {
  const std::string text = TextOf(jwk, name);
  std::string bytes;
  if (text.empty() || text.size() > kMaxMemberBytes || !absl::WebSafeBase64Unescape(text, &bytes) ||
      bytes.empty()) {
    return InvalidArgument("\"{}\" must be a number in base64url", name);
  }
  return bytes;
}

Number NumberOf(const std::string& bytes) {
  return Number(BN_bin2bn(Data(bytes), static_cast<int>(bytes.size()), nullptr));
}

EVP_PKEY* KeyFrom(const char* kind, OSSL_PARAM_BLD* builder) {
  const Params params(OSSL_PARAM_BLD_to_param(builder));
  const Context context(EVP_PKEY_CTX_new_from_name(nullptr, kind, nullptr));
  EVP_PKEY* key = nullptr;
  if (context == nullptr || params == nullptr || EVP_PKEY_fromdata_init(context.get()) != 1 ||
      EVP_PKEY_fromdata(context.get(), &key, EVP_PKEY_PUBLIC_KEY, params.get()) != 1) {
    return nullptr;
  }
  return key;
}

// The signature in DER of r and s, 32 bytes each (RFC 7518, section 3.4). Empty: not a signature.
std::string ToDer(std::string_view raw) {
  if (raw.size() != 2 * kCoordinateBytes) return "";
  Signature signature(ECDSA_SIG_new());
  Number r = NumberOf(std::string(raw.substr(0, kCoordinateBytes)));
  Number s = NumberOf(std::string(raw.substr(kCoordinateBytes)));
  if (ECDSA_SIG_set0(signature.get(), r.get(), s.get()) != 1) return "";
  (void)r.release();  // the signature owns both now
  (void)s.release();
  unsigned char* out = nullptr;
  const int size = i2d_ECDSA_SIG(signature.get(), &out);
  if (size <= 0) return "";
  std::string der(reinterpret_cast<const char*>(out), static_cast<size_t>(size));
  OPENSSL_free(out);
  return der;
}

}  // namespace

void JwtKey::Free::operator()(evp_pkey_st* key) const {
  EVP_PKEY_free(key);
}

StatusOr<JwtKey::Handle> JwtKey::ParseRsa(const Json& jwk) {
  BATON_ASSIGN_OR_RETURN(const std::string n, BytesOf(jwk, "n"));
  BATON_ASSIGN_OR_RETURN(const std::string e, BytesOf(jwk, "e"));
  const Number modulus = NumberOf(n);
  const Number exponent = NumberOf(e);
  const int bits = BN_num_bits(modulus.get());
  if (bits < kMinRsaBits || bits > kMaxRsaBits) {
    return InvalidArgument(
        "an RSA key of {} bits; {} to {} are accepted", bits, kMinRsaBits, kMaxRsaBits);
  }
  const Builder builder(OSSL_PARAM_BLD_new());
  OSSL_PARAM_BLD_push_BN(builder.get(), OSSL_PKEY_PARAM_RSA_N, modulus.get());
  OSSL_PARAM_BLD_push_BN(builder.get(), OSSL_PKEY_PARAM_RSA_E, exponent.get());
  return Handle(KeyFrom("RSA", builder.get()));
}

StatusOr<JwtKey::Handle> JwtKey::ParseEc(const Json& jwk) {
  BATON_ASSIGN_OR_RETURN(const std::string x, BytesOf(jwk, "x"));
  BATON_ASSIGN_OR_RETURN(const std::string y, BytesOf(jwk, "y"));
  if (x.size() != kCoordinateBytes || y.size() != kCoordinateBytes) {
    return InvalidArgument("\"x\" and \"y\" must have {} bytes each", kCoordinateBytes);
  }
  const std::string point = "\x04" + x + y;  // uncompressed
  const Builder builder(OSSL_PARAM_BLD_new());
  OSSL_PARAM_BLD_push_utf8_string(builder.get(), OSSL_PKEY_PARAM_GROUP_NAME, "P-256", 0);
  OSSL_PARAM_BLD_push_octet_string(
      builder.get(), OSSL_PKEY_PARAM_PUB_KEY, point.data(), point.size());
  return Handle(KeyFrom("EC", builder.get()));
}

StatusOr<JwtKey::Handle> JwtKey::ParseEd25519(const Json& jwk) {
  BATON_ASSIGN_OR_RETURN(const std::string x, BytesOf(jwk, "x"));
  if (x.size() != kCoordinateBytes) {
    return InvalidArgument("\"x\" must have {} bytes", kCoordinateBytes);
  }
  return Handle(EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, nullptr, Data(x), x.size()));
}

StatusOr<JwtKey> JwtKey::Parse(const Json& jwk) {
  if (!jwk.is_object()) return InvalidArgument("must be an object");
  const std::string kind = TextOf(jwk, "kty");
  const std::string curve = TextOf(jwk, "crv");
  std::string algorithm;
  if (kind == "RSA") algorithm = "RS256";
  if (kind == "EC" && curve == "P-256") algorithm = "ES256";
  if (kind == "OKP" && curve == "Ed25519") algorithm = "EdDSA";
  const std::string stated = TextOf(jwk, "alg");
  const std::string use = TextOf(jwk, "use");
  if (algorithm.empty() || (!stated.empty() && stated != algorithm) ||
      (!use.empty() && use != "sig")) {
    return MakeStatus(StatusCode::kNotFound, "not a key that is used here");
  }
  StatusOr<Handle> key = kind == "RSA"  ? ParseRsa(jwk)
                         : kind == "EC" ? ParseEc(jwk)
                                        : ParseEd25519(jwk);
  if (!key.ok()) return key.status();
  if (*key == nullptr) return InvalidArgument("not a valid {} key", algorithm);
  return JwtKey(TextOf(jwk, "kid"), algorithm, *std::move(key));
}

bool JwtKey::Verifies(std::string_view bytes, std::string_view signature) const {
  std::string der;
  if (algorithm_ == "ES256") {
    der = ToDer(signature);
    if (der.empty()) return false;
    signature = der;
  }
  const EVP_MD* const hash = algorithm_ == "EdDSA" ? nullptr : EVP_sha256();
  const Digest digest(EVP_MD_CTX_new());
  return EVP_DigestVerifyInit(digest.get(), nullptr, hash, nullptr, key_.get()) == 1 &&
         EVP_DigestVerify(
             digest.get(), Data(signature), signature.size(), Data(bytes), bytes.size()) == 1;
}

}  // namespace baton
