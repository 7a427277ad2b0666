// What a client sends to an HTTP port after the preface of HTTP/2: frames, headers, bodies. The
// first byte of the input selects the server's limits, the size of the pieces in which the rest is
// sent, and whether a request with a short body comes first. The server must not crash, must send
// only whole frames, and must give a handler only complete requests within the limits.

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
    options.max_connections = 2;
  }
  return options;
}

void CheckRequest(const HttpRequest& request) {
  for (const auto& [name, value] : request.headers) {
    BATON_CHECK(name != "connection" && name != "transfer-encoding" && name != "upgrade",
                "the handler received the header '{}', which HTTP/2 does not have",
                name);
  }
  const std::string_view stated = request.header("content-length");
  BATON_CHECK(stated.empty() || stated == std::to_string(request.body.size()),
              "the handler received {} bytes of a body with content-length {}",
              request.body.size(),
              stated);
}

void CheckFrames(std::string_view answer) {
  bool first = true;
  for (const http2::Received& frame : http2::FramesIn(answer)) {
    BATON_CHECK(!first || frame.type == http2::kSettings, "the first frame has another type");
    BATON_CHECK(frame.type <= http2::kContinuation, "a frame has the type {}", frame.type);
    BATON_CHECK(frame.payload.size() <= 16384, "a frame has {} bytes", frame.payload.size());
    first = false;
  }
}

std::string FirstRequest() {
  return http2::Frame(http2::kHeaders, http2::kEndHeaders, 1, http2::Header("POST", "/echo")) +
         http2::Frame(http2::kData, http2::kEndStream, 1, "body");
}

}  // namespace
}  // namespace baton

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static baton::HttpFuzzPort small(baton::Options(/*small=*/true), baton::CheckRequest);
  static baton::HttpFuzzPort usual(baton::Options(/*small=*/false), baton::CheckRequest);
  static constexpr std::array<size_t, 4> kPieces = {std::string_view::npos, 1, 7, 64};
  if (size == 0) return 0;
  std::string bytes(baton::http2::kPreface);
  if (data[0] / 8 % 2 == 0) bytes = baton::http2::Greeting() + baton::FirstRequest();
  bytes.append(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::string answer =
      (data[0] % 2 == 0 ? small : usual).Serve(bytes, kPieces[data[0] / 2 % kPieces.size()]);
  // A connection over the limit is refused before the server knows its protocol.
  if (!answer.starts_with("HTTP/1.1 503 ")) baton::CheckFrames(answer);
  return 0;
}
