#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "common/base/message_mac.h"

namespace baton {

// GMAC with AES-256 (NIST SP 800-38D). The nonce of a message is its number, so a key is for one
// direction of one connection only.
class Gmac final : public MessageMac {
 public:
  static constexpr size_t kKeyBytes = 32;

  // `key` has kKeyBytes bytes.
  explicit Gmac(std::string_view key);
  ~Gmac() override;

  void Update(std::span<const std::byte> bytes) override;
  MacTag Finish() override;

 private:
  struct Context;

  void BeginMessage();

  const std::unique_ptr<Context> context_;
  uint64_t number_ = 0;
};

}  // namespace baton
