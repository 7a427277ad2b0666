// The payload of SEAL: the first tokens that a prefill worker sends to a decode worker. A payload
// that is accepted must have one meaning: its tokens, encoded and decoded again, encode to the same
// bytes.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/base/check.h"
#include "common/worker/kv_control_wire.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace baton;  // NOLINT(google-build-using-namespace)
  const std::string payload(reinterpret_cast<const char*>(data), size);
  const StatusOr<std::vector<SampledToken>> tokens = DecodeFirstTokens(payload);
  if (!tokens.ok()) return 0;
  const std::string encoded = EncodeFirstTokens(*tokens);
  const StatusOr<std::vector<SampledToken>> again = DecodeFirstTokens(encoded);
  BATON_CHECK(again.ok(), "first tokens are refused after they were accepted");
  BATON_CHECK(EncodeFirstTokens(*again) == encoded, "first tokens change their meaning");
  return 0;
}
