#pragma once

#include <cstddef>
#include <string_view>

#include "common/chat_format/call_reader.h"
#include "common/chat_format/chat_event.h"
#include "common/chat_format/json_scanner.h"
#include "common/chat_format/markers.h"

namespace baton {

// What some models write as the arguments of a call without arguments.
constexpr std::string_view kNoArguments[] = {"null", "\"\""};

// Removes one of kNoArguments from the front of `text`. kMaybe: one may begin there.
inline Begins TakeNoArguments(std::string_view& text) {
  bool maybe = false;
  for (const std::string_view literal : kNoArguments) {
    const Begins begins = BeginsWith(text, literal);
    maybe |= begins == Begins::kMaybe;
    if (begins != Begins::kYes) continue;
    text.remove_prefix(literal.size());
    return Begins::kYes;
  }
  return maybe ? Begins::kMaybe : Begins::kNo;
}

// Reads the arguments of a call that has begun, a JSON object, and ends the call with them. Not
// thread-safe.
class ArgumentsReader final {
 public:
  CallReader::State Read(std::string_view& text, ChatEvents& out) {
    const size_t length = scanner_.Scan(text);
    out.Arguments(text.substr(0, length));
    text.remove_prefix(length);
    if (scanner_.state() == JsonScanner::State::kBad) return CallReader::State::kBad;
    if (scanner_.state() == JsonScanner::State::kMore) return CallReader::State::kMore;
    out.EndCall();
    return CallReader::State::kDone;
  }

 private:
  JsonScanner scanner_;
};

}  // namespace baton
