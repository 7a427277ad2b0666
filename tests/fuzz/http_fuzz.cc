// What a client sends to an HTTP port: request lines, headers, bodies with a length or in chunks,
// and further requests on the same connection. The first byte of the input selects the server's
// limits and the size of the pieces in which the rest is sent. The server must not crash, every
// answer must be an HTTP answer, and a handler must receive only complete requests within the
// limits.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/check.h"
#include "tests/fuzz/http_fuzz_port.h"
#include "tests/support/http2_frames.h"

namespace baton {
namespace {

// The limits of a process by default, or limits that short inputs reach.
HttpServerOptions Options(bool small) {
  HttpServerOptions options;
  if (small) {
    options.max_header_bytes = 1024;
    options.max_body_bytes = 64;
  }
  return options;
}

}  // namespace
}  // namespace baton

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static baton::HttpFuzzPort small(baton::Options(/*small=*/true));
  static baton::HttpFuzzPort usual(baton::Options(/*small=*/false));
  static constexpr std::array<size_t, 4> kPieces = {std::string_view::npos, 1, 7, 64};
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (bytes.starts_with(baton::http2::kPreface)) return 0;  // for http2_fuzz
  const std::string answer =
      (data[0] % 2 == 0 ? small : usual).Serve(bytes, kPieces[data[0] / 2 % kPieces.size()]);
  BATON_CHECK(answer.empty() || answer.starts_with("HTTP/1.1 "), "not an HTTP answer: {}", answer);
  return 0;
}
