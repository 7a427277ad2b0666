// A stranger sends messages of a handshake to a listener and to a dialler. Each message of the
// input is preceded by its length in one byte. The stranger must never be accepted.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "common/base/check.h"
#include "common/security/secret_proof.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace baton;  // NOLINT(google-build-using-namespace)
  static const auto secret = std::make_shared<const ClusterSecret>(
      ClusterSecret::Parse("a-secret-that-the-stranger-has-not").value());
  ClusterSecret::Parse({reinterpret_cast<const char*>(data), size}).IgnoreError();
  SecretProof listener(secret, PeerSide::kListener, "fuzz");
  SecretProof dialler(secret, PeerSide::kDialler, "fuzz");
  dialler.Begin();
  while (size > 0) {
    const size_t length = std::min<size_t>(data[0], size - 1);
    const std::string_view message(reinterpret_cast<const char*>(data) + 1, length);
    for (PeerProof* const end :
         {static_cast<PeerProof*>(&listener), static_cast<PeerProof*>(&dialler)}) {
      const auto answer = end->OnMessage(message);
      BATON_CHECK(!answer.ok() || answer->empty() || answer->size() == kPeerProofBytes, "size");
      BATON_CHECK(!end->done(), "a stranger is accepted");
    }
    data += 1 + length;
    size -= 1 + length;
  }
  return 0;
}
