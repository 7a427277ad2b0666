#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/chat_format/call_reader.h"
#include "common/chat_format/call_syntax.h"
#include "common/chat_format/json_scanner.h"
#include "common/chat_format/markers.h"

namespace baton {

// Converts a value as Gemma 4 writes it to JSON, as it arrives: {key:71,other:[true,<|"|>a<|"|>]}.
// Strings stand between marks, and have no escapes. Keys are bare. What models write instead is
// read, too: strings of JSON, and bare words as strings. A string without its closing mark ends at
// the next marker. Not thread-safe.
class GemmaValue final {
 public:
  using State = CallReader::State;

  // `syntax` outlives the value.
  explicit GemmaValue(const CallSyntax& syntax)
      : quote_(syntax.value_begin), markers_(syntax.All()) {}

  // Removes the bytes of the value from the front of `text` and appends JSON to `json`. kMore: as
  // CallReader::Read. kBad: the next byte does not go on with the value. That changes nothing:
  // Close may follow.
  State Read(std::string_view& text, std::string& json);
  // Closes the open brackets at the end of the call. False: a key or a value is missing.
  bool Close(std::string& json);

 private:
  enum class Expect : uint8_t {
    kValue,
    kValueOrEnd,
    kKeyOrEnd,
    kColon,
    kCommaOrEnd,
    kString,
    kJsonString,
    kWord,
  };

  State ReadPart(std::string_view& text, std::string& json);
  State ReadString(std::string_view& text, std::string& json);
  State ReadJsonString(std::string_view& text, std::string& json);
  State ReadWord(std::string_view& text, std::string& json);
  State ReadBetween(std::string_view& text, std::string& json);
  State Begin(std::string_view& text, std::string& json);
  bool MayClose() const;
  void EndWord(std::string& json);
  void CloseBracket(std::string& json);
  void Separate(std::string& json);
  State EndKeyOrValue();
  State EndValue();

  const std::string& quote_;
  const Markers markers_;
  Expect expect_ = Expect::kValue;
  JsonScanner json_string_;
  std::string word_;       // so far
  bool key_ = false;       // the string or the word is a key
  std::string open_;       // the open '{' and '['
  bool separate_ = false;  // a comma belongs before the next value
};

}  // namespace baton
