#include "common/security/digest.h"

#include <openssl/crypto.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <openssl/sha.h>

#include <absl/strings/escaping.h>

#include "common/base/check.h"

namespace baton {
namespace {

const unsigned char* Data(std::string_view bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

}  // namespace

Digest256 Sha256(std::string_view bytes) {
  Digest256 digest;
  SHA256(Data(bytes), bytes.size(), digest.data());
  return digest;
}

Digest256 HmacSha256(std::string_view key, std::string_view bytes) {
  Digest256 digest;
  const auto* made = HMAC(EVP_sha256(),
                          key.data(),
                          static_cast<int>(key.size()),
                          Data(bytes),
                          bytes.size(),
                          digest.data(),
                          nullptr);
  BATON_CHECK(made != nullptr, "OpenSSL cannot compute HMAC-SHA256");
  return digest;
}

Digest256 HkdfSha256(std::string_view secret, std::string_view salt, std::string_view info) {
  const Digest256 extracted = HmacSha256(salt, secret);
  return HmacSha256(BytesOf(extracted), std::string(info) + '\x01');
}

std::string RandomBytes(size_t count) {
  std::string bytes(count, '\0');
  const int made =
      RAND_bytes(reinterpret_cast<unsigned char*>(bytes.data()), static_cast<int>(count));
  BATON_CHECK(made == 1, "the system has no random bytes");
  return bytes;
}

bool EqualSecrets(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

std::string_view BytesOf(const Digest256& digest) {
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

std::string Base64Url(std::string_view bytes) {
  std::string text;
  absl::WebSafeBase64Escape({bytes.data(), bytes.size()}, &text);
  return text;
}

}  // namespace baton
