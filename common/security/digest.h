#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

// The cryptographic functions that authentication needs, from OpenSSL. Not for content hashes, for
// which common/base/hash.h is faster.
namespace baton {

using Digest256 = std::array<uint8_t, 32>;

Digest256 Sha256(std::string_view bytes);
// HMAC-SHA256 (RFC 2104).
Digest256 HmacSha256(std::string_view key, std::string_view bytes);
// HKDF with SHA-256 (RFC 5869): a key of 32 bytes, made of a secret. Different salts or infos give
// independent keys.
Digest256 HkdfSha256(std::string_view secret, std::string_view salt, std::string_view info);
// Random bytes from the operating system's generator, fit for keys and nonces.
std::string RandomBytes(size_t count);
// Compares in a time that does not depend on the content.
bool EqualSecrets(std::string_view a, std::string_view b);

std::string_view BytesOf(const Digest256& digest);
// base64url without padding (RFC 4648, section 5).
std::string Base64Url(std::string_view bytes);

}  // namespace baton
