#include "kvtransfer/nccl/welcome.h"

#include <algorithm>
#include <cctype>
#include <charconv>

#include <absl/strings/escaping.h>

#include "kernels/pair_exchange.h"

namespace baton {
namespace {

constexpr std::string_view kVersion = "1";
constexpr uint64_t kMaxBuffers = 1024;
constexpr uint64_t kMaxBufferBytes = uint64_t{1} << 30;

// Removes the text before the next '|', or all of it, from the front of `rest` and returns it.
std::string_view TakeField(std::string_view& rest) {
  const size_t bar = std::min(rest.find('|'), rest.size());
  const std::string_view field = rest.substr(0, bar);
  rest.remove_prefix(std::min(bar + 1, rest.size()));
  return field;
}

// A number from 1 to `limit`, or 0 for anything else.
uint64_t ParseNumber(std::string_view text, uint64_t limit) {
  uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole && number <= limit ? number : 0;
}

bool IsHexDigit(char digit) {
  return std::isxdigit(static_cast<unsigned char>(digit)) != 0;
}

}  // namespace

std::string EncodeNcclWelcome(const NcclWelcome& welcome) {
  return fmt::format("{}|{}|{}|{}",
                     kVersion,
                     welcome.buffers,
                     welcome.buffer_bytes,
                     absl::BytesToHexString(welcome.pair_id));
}

StatusOr<NcclWelcome> ParseNcclWelcome(std::string_view text) {
  std::string_view rest = text;
  NcclWelcome welcome;
  const bool is_known = TakeField(rest) == kVersion;
  welcome.buffers = static_cast<uint32_t>(ParseNumber(TakeField(rest), kMaxBuffers));
  welcome.buffer_bytes = ParseNumber(TakeField(rest), kMaxBufferBytes);
  const bool is_hex =
      !rest.empty() && rest.size() % 2 == 0 && std::ranges::all_of(rest, IsHexDigit);
  if (!is_known || welcome.buffers == 0 || welcome.buffer_bytes == 0 || !is_hex ||
      rest.size() / 2 > kMaxPairIdBytes) {
    return InvalidArgument("nccl: the peer's welcome '{}' is not '{}|buffers|bytes|id in hex'",
                           text.substr(0, 64),
                           kVersion);
  }
  welcome.pair_id = absl::HexStringToBytes(std::string(rest));
  return welcome;
}

}  // namespace baton
