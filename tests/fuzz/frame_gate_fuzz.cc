// What a client and a server send through a gRPC port: the first byte of the input says whether the
// client has proven itself and in which pieces the rest is sent. The gate must not crash, must not
// depend on the pieces, and must bound what a client that has proven nothing can make gRPC hold.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "common/base/check.h"
#include "common/rpc/frame_gate.h"
#include "tests/support/http2_frames.h"

namespace baton {
namespace {

constexpr size_t kLoad = size_t{256} << 10;

// Why no more bytes pass; empty: all do.
std::string_view Pass(std::string_view bytes, bool proven, size_t piece) {
  StrangerLoad load(kLoad);
  RemoteClient client("", "");
  if (proven) client.SetProven();
  FrameGate gate(client, load, [] {});
  const Time now{};
  gate.FromClient(http2::kPreface, now);
  for (size_t at = 0; at < bytes.size() && gate.failure().empty(); at += piece) {
    gate.FromClient(bytes.substr(at, piece), now);
    BATON_CHECK(load.bytes() <= kLoad, "strangers hold {} bytes", load.bytes());
  }
  const std::string_view failure = gate.failure();
  gate.FromServer(bytes, now);
  return failure;
}

}  // namespace
}  // namespace baton

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const bool proven = (data[0] & 1) != 0;
  const size_t piece = 1 + data[0] / 2;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  const std::string_view whole = baton::Pass(bytes, proven, bytes.size() + 1);
  const std::string_view pieces = baton::Pass(bytes, proven, piece);
  BATON_CHECK(whole == pieces,
              "the bytes pass in one piece ('{}') but not in pieces of {} ('{}')",
              whole,
              piece,
              pieces);
  return 0;
}
