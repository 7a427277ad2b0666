#include "common/chat_format/gemma_value.h"

#include <algorithm>
#include <utility>

#include "common/base/json.h"
#include "common/chat_format/call_names.h"
#include "common/chat_format/tagged_value.h"

namespace baton {
namespace {

// Bytes that end a bare word, and a bare key: '<' and the sign may begin a marker.
constexpr std::string_view kWordEnds = ",}]<\xFF";
constexpr std::string_view kKeyEnds = ":,{}[]<\xFF";

char Closing(char open) {
  return open == '[' ? ']' : '}';
}

}  // namespace

GemmaValue::State GemmaValue::Read(std::string_view& text, std::string& json) {
  return ReadParts(text, expect_, [&] { return ReadPart(text, json); });
}

bool GemmaValue::Close(std::string& json) {
  if (!MayClose()) return false;
  while (!open_.empty()) CloseBracket(json);
  return true;
}

GemmaValue::State GemmaValue::ReadPart(std::string_view& text, std::string& json) {
  switch (expect_) {
    case Expect::kString:
      return ReadString(text, json);
    case Expect::kJsonString:
      return ReadJsonString(text, json);
    case Expect::kWord:
      return ReadWord(text, json);
    default:
      return ReadBetween(text, json);
  }
}

GemmaValue::State GemmaValue::ReadString(std::string_view& text, std::string& json) {
  const Markers::Found found = markers_.Find(text);
  AppendEscaped(text.substr(0, found.at), json);
  text.remove_prefix(found.at);
  if (found.marker < 0) return State::kMore;
  const bool closed = markers_[found.marker] == quote_;
  if (key_ && !closed) return State::kBad;
  if (closed) text.remove_prefix(quote_.size());
  json += '"';
  return EndKeyOrValue();
}

GemmaValue::State GemmaValue::ReadJsonString(std::string_view& text, std::string& json) {
  const size_t length = json_string_.Scan(text);
  json += text.substr(0, length);
  text.remove_prefix(length);
  if (json_string_.state() == JsonScanner::State::kBad) return State::kBad;
  return json_string_.state() == JsonScanner::State::kMore ? State::kMore : EndKeyOrValue();
}

GemmaValue::State GemmaValue::ReadWord(std::string_view& text, std::string& json) {
  const size_t end = std::min(text.find_first_of(key_ ? kKeyEnds : kWordEnds), text.size());
  const size_t length = std::min(end, kMaxCallNameBytes - word_.size());
  word_ += text.substr(0, length);
  text.remove_prefix(length);
  if (length < end) return State::kBad;
  if (text.empty()) return State::kMore;
  if (key_ && text.front() != ':') return State::kBad;
  EndWord(json);
  return EndKeyOrValue();
}

GemmaValue::State GemmaValue::ReadBetween(std::string_view& text, std::string& json) {
  text.remove_prefix(SpaceAtFront(text));
  if (text.empty()) return State::kMore;
  const char c = text.front();
  if (MayClose() && c == Closing(open_.back())) {
    text.remove_prefix(1);
    CloseBracket(json);
    return EndValue();
  }
  switch (expect_) {
    case Expect::kCommaOrEnd:
      if (c != ',') return State::kBad;
      text.remove_prefix(1);
      separate_ = true;
      expect_ = open_.back() == '{' ? Expect::kKeyOrEnd : Expect::kValueOrEnd;
      return State::kMore;
    case Expect::kColon:
      if (c != ':') return State::kBad;
      text.remove_prefix(1);
      json += ": ";
      expect_ = Expect::kValue;
      return State::kMore;
    default:
      return Begin(text, json);
  }
}

// A key or a value.
GemmaValue::State GemmaValue::Begin(std::string_view& text, std::string& json) {
  const Begins quote = BeginsWith(text, quote_);
  if (quote == Begins::kMaybe) return State::kMore;
  key_ = expect_ == Expect::kKeyOrEnd;
  const char c = text.front();
  const bool opens = !key_ && (c == '{' || c == '[');
  if (opens && open_.size() == static_cast<size_t>(kMaxJsonDepth)) return State::kBad;
  if (!opens && quote == Begins::kNo && kKeyEnds.find(c) != std::string_view::npos) {
    return State::kBad;
  }
  Separate(json);
  if (quote == Begins::kYes) {
    text.remove_prefix(quote_.size());
    json += '"';
    expect_ = Expect::kString;
  } else if (c == '"') {
    json_string_ = {};
    expect_ = Expect::kJsonString;
  } else if (opens) {
    text.remove_prefix(1);
    json += c;
    open_ += c;
    expect_ = c == '{' ? Expect::kKeyOrEnd : Expect::kValueOrEnd;
  } else {
    expect_ = Expect::kWord;
  }
  return State::kMore;
}

bool GemmaValue::MayClose() const {
  return expect_ == Expect::kValueOrEnd || expect_ == Expect::kKeyOrEnd ||
         expect_ == Expect::kCommaOrEnd;
}

// The template writes a null as Python does.
void GemmaValue::EndWord(std::string& json) {
  const std::string word = std::exchange(word_, {});
  const std::string_view value = Trimmed(word);
  if (!key_ && (value == "None" || IsJson(value))) {
    json += value == "None" ? "null" : value;
  } else {
    json += '"';
    AppendEscaped(value, json);
    json += '"';
  }
}

void GemmaValue::CloseBracket(std::string& json) {
  json += Closing(open_.back());
  open_.pop_back();
}

void GemmaValue::Separate(std::string& json) {
  if (separate_) json += ", ";
  separate_ = false;
}

GemmaValue::State GemmaValue::EndKeyOrValue() {
  if (!key_) return EndValue();
  expect_ = Expect::kColon;
  return State::kMore;
}

GemmaValue::State GemmaValue::EndValue() {
  if (open_.empty()) return State::kDone;
  expect_ = Expect::kCommaOrEnd;
  return State::kMore;
}

}  // namespace baton
