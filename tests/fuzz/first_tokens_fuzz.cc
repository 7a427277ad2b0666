// The payload of SEAL: the first tokens that a prefill worker sends to a decode worker. The first
// byte of the input is the request's number of samples. A payload that is accepted must have one
// meaning: its tokens, encoded and decoded again, encode to the same bytes.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "common/base/check.h"
#include "common/worker/kv_control_wire.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace baton;  // NOLINT(google-build-using-namespace)
  if (size == 0) return 0;
  const int32_t samples = data[0];
  const std::string payload(reinterpret_cast<const char*>(data) + 1, size - 1);
  const StatusOr<std::vector<SampledToken>> tokens = DecodeFirstTokens(payload, samples);
  if (!tokens.ok()) return 0;
  BATON_CHECK(tokens->size() == data[0], "{} tokens for {} samples", tokens->size(), samples);
  const std::string encoded = EncodeFirstTokens(*tokens);
  const StatusOr<std::vector<SampledToken>> again = DecodeFirstTokens(encoded, samples);
  BATON_CHECK(again.ok(), "first tokens are refused after they were accepted");
  BATON_CHECK(EncodeFirstTokens(*again) == encoded, "first tokens change their meaning");
  return 0;
}
