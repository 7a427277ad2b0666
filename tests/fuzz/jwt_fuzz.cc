// The first byte of the input selects what the rest is: a JWK set, or a token for a known key. No
// token may be accepted, because the input cannot contain a valid signature.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "common/base/check.h"
#include "common/security/jwt.h"

namespace {

constexpr int64_t kNow = 1'800'000'000;
// RFC 8037, appendix A.2, and RFC 7517, appendix A.1.
constexpr std::string_view kKeys = R"({"keys": [
  {"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"},
  {"kty": "EC", "crv": "P-256", "use": "sig", "kid": "1",
   "x": "MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4",
   "y": "4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM"}]})";

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using baton::JwtKeys;
  if (size == 0) return 0;
  const std::string_view rest(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (data[0] % 2 == 0) {
    const auto keys = JwtKeys::Parse(rest, {});
    if (keys.ok()) keys->Verify("e30.e30.e30", kNow).IgnoreError();
    return 0;
  }
  static const JwtKeys keys = JwtKeys::Parse(kKeys, {}).value();
  BATON_CHECK(!keys.Verify(rest, kNow).ok(), "a token without a valid signature is accepted");
  return 0;
}
