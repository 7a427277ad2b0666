#include "common/http/http2_stream.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace baton {

void Http2Stream::Append(std::string bytes, bool last, Time now, Duration write_timeout) {
  output_ends = last;
  if (bytes.empty()) return;
  if (output.empty()) deadline = now + write_timeout;
  output.push_back(std::move(bytes));
}

size_t Http2Stream::Take(std::span<uint8_t> into, bool& ends, Time now, Duration write_timeout) {
  size_t taken = 0;
  while (taken < into.size() && !output.empty()) {
    const std::string& front = output.front();
    const size_t size = std::min(into.size() - taken, front.size() - taken_of_front);
    std::memcpy(into.data() + taken, front.data() + taken_of_front, size);
    taken += size;
    taken_of_front += size;
    if (taken_of_front < front.size()) break;
    output.pop_front();
    taken_of_front = 0;
    deadline = output.empty() ? kNever : now + write_timeout;
  }
  unsent->Remove(taken);
  ends = output_ends && output.empty();
  return taken;
}

}  // namespace baton
