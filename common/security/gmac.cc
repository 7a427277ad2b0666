#include "common/security/gmac.h"

#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "common/base/check.h"
#include "common/base/free_with.h"

namespace baton {
namespace {

constexpr size_t kNonceBytes = 12;
constexpr size_t kMaxUpdateBytes = size_t{1} << 30;  // OpenSSL counts in int

void Check(int result) {
  BATON_CHECK(result == 1, "OpenSSL cannot compute GMAC");
}

}  // namespace

struct Gmac::Context {
  std::unique_ptr<EVP_CIPHER_CTX, FreeWith<EVP_CIPHER_CTX_free>> cipher{EVP_CIPHER_CTX_new()};
};

Gmac::Gmac(std::string_view key) : context_(std::make_unique<Context>()) {
  BATON_CHECK(key.size() == kKeyBytes, "a key of {} bytes, not {}", key.size(), kKeyBytes);
  const auto* const bytes = reinterpret_cast<const unsigned char*>(key.data());
  Check(EVP_EncryptInit_ex(
      context_->cipher.get(), EVP_aes_256_gcm(), nullptr, bytes, /*iv=*/nullptr));
  BeginMessage();
}

Gmac::~Gmac() = default;

void Gmac::BeginMessage() {
  std::array<unsigned char, kNonceBytes> nonce{};
  std::memcpy(nonce.data(), &number_, sizeof(number_));
  Check(
      EVP_EncryptInit_ex(context_->cipher.get(), nullptr, nullptr, /*key=*/nullptr, nonce.data()));
}

void Gmac::Update(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const size_t part = std::min(bytes.size(), kMaxUpdateBytes);
    int written = 0;
    Check(EVP_EncryptUpdate(context_->cipher.get(),
                            /*out=*/nullptr,
                            &written,
                            reinterpret_cast<const unsigned char*>(bytes.data()),
                            static_cast<int>(part)));
    bytes = bytes.subspan(part);
  }
}

MacTag Gmac::Finish() {
  MacTag tag{};
  std::array<unsigned char, 16> none{};
  int written = 0;
  Check(EVP_EncryptFinal_ex(context_->cipher.get(), none.data(), &written));
  Check(EVP_CIPHER_CTX_ctrl(
      context_->cipher.get(), EVP_CTRL_AEAD_GET_TAG, static_cast<int>(tag.size()), tag.data()));
  ++number_;
  BeginMessage();
  return tag;
}

}  // namespace baton
