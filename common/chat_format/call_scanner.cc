#include "common/chat_format/call_scanner.h"

#include <utility>

#include "common/chat_format/call_names.h"
#include "common/chat_format/functionary_messages.h"
#include "common/chat_format/gemma_calls.h"
#include "common/chat_format/json_calls.h"
#include "common/chat_format/marked_calls.h"
#include "common/chat_format/minimax_m3_calls.h"
#include "common/chat_format/mistral_calls.h"
#include "common/chat_format/python_calls.h"
#include "common/chat_format/tagged_calls.h"

namespace baton {
namespace {

bool ContinuesCharacter(char c) {
  return (static_cast<unsigned char>(c) & 0xC0) == 0x80;
}

// Whether a call without a marker may begin with `c`.
bool MayBeginBareCall(CallStyle style, char c) {
  switch (style) {
    case CallStyle::kBareJson:
      return c == '{';
    case CallStyle::kPython:
      return c == '[';
    case CallStyle::kMessages:
      return IsNameByte(c);
    default:
      return false;
  }
}

}  // namespace

CallScanner::CallScanner(const CallOptions& options)
    : options_(options),
      syntax_(SyntaxOf(options.format, options.special)),
      beginnings_(syntax_.Beginnings()) {}

void CallScanner::Append(std::string_view text, ChatEvents& out) {
  std::string joined = std::exchange(held_, {});
  if (!joined.empty()) text = joined += text;
  Scan(text, /*last=*/false, out);
  held_ = text;
}

void CallScanner::Finish(ChatEvents& out) {
  const std::string held = std::exchange(held_, {});
  std::string_view rest = held;
  Scan(rest, /*last=*/true, out);
  raw_ += rest;
  if (reader_ != nullptr && reader_->Finish(out) == CallReader::State::kBad) FailCall(out);
  if (!after_call_) out.Content(space_);
}

void CallScanner::Scan(std::string_view& text, bool last, ChatEvents& out) {
  while (!text.empty()) {
    const bool goes_on = reader_ == nullptr ? ScanContent(text, last, out) : ScanCalls(text, out);
    if (!goes_on) return;
  }
}

// Returns false when more text is needed.
bool CallScanner::ScanContent(std::string_view& text, bool last, ChatEvents& out) {
  if (after_call_ && !DropClosings(text, last)) return false;
  if (BeginBareCalls(text)) return true;
  const Markers::Found found = beginnings_.Find(text, last);
  AddContent(text.substr(0, found.at), out);
  text.remove_prefix(found.at);
  if (found.marker < 0) return false;
  const std::string& marker = beginnings_[found.marker];
  text.remove_prefix(marker.size());
  if (syntax_.IsOpening(marker)) {
    BeginCalls(marker);
  } else {
    space_ += marker;
    after_call_ = false;
  }
  return true;
}

bool CallScanner::DropClosings(std::string_view& text, bool last) {
  while (true) {
    const size_t space = SpaceAtFront(text);
    space_ += text.substr(0, space);
    text.remove_prefix(space);
    if (text.empty()) return false;
    size_t length = 0;
    bool maybe = false;
    const auto match = [&](std::string_view closing) {
      const Begins begins = closing.empty() ? Begins::kNo : BeginsWith(text, closing);
      if (begins == Begins::kYes) length = closing.size();
      maybe |= begins == Begins::kMaybe;
    };
    for (const std::string& closing : syntax_.closings) match(closing);
    const bool closes = length > 0;
    if (!after_closing_) match(syntax_.trailer);
    // A closing marker that is cut off is dropped, too.
    if (length == 0 && maybe && last) length = text.size();
    if (length == 0) return !maybe;
    after_closing_ |= closes;
    text.remove_prefix(length);
    space_.clear();
  }
}

bool CallScanner::BeginBareCalls(std::string_view& text) {
  if (!syntax_.bare) return false;
  // Functionary's first message has its marker in the prompt; all others have theirs.
  const bool only_first = syntax_.style == CallStyle::kMessages;
  if (only_first ? any_content_ || after_call_ : any_content_ && !after_call_) return false;
  const size_t space = SpaceAtFront(text);
  if (space == text.size() || !MayBeginBareCall(syntax_.style, text[space])) return false;
  space_ += text.substr(0, space);
  text.remove_prefix(space);
  BeginCalls("");
  return true;
}

void CallScanner::BeginCalls(std::string_view marker) {
  reader_ = ReaderOf(/*bare=*/marker.empty());
  raw_ = std::exchange(space_, {});
  raw_ += marker;
  opening_ = raw_.size();
}

// Text could contain an opening that is not a special token by chance, or in a quotation: then only
// tools that were offered are called.
std::unique_ptr<CallReader> CallScanner::ReaderOf(bool bare) const {
  const bool may_be_text = bare || (!syntax_.special && !options_.tools->empty());
  const CallNames names(*options_.tools, may_be_text || options_.offered_only);
  const std::string_view closing =
      syntax_.closings.empty() ? std::string_view() : syntax_.closings.front();
  switch (syntax_.style) {
    case CallStyle::kBareJson:
      return std::make_unique<JsonCallList>(names, JsonCallList::Options{.bare = bare});
    case CallStyle::kJsonList:
      return std::make_unique<JsonListCalls>(names, closing);
    case CallStyle::kPython:
      return std::make_unique<PythonCalls>(names);
    case CallStyle::kMistral:
      return std::make_unique<MistralCalls>(names, options_.special);
    case CallStyle::kTagged:
      return std::make_unique<TaggedCalls>(syntax_, names, *options_.tools);
    case CallStyle::kMarked:
    case CallStyle::kMarkedId:
      return std::make_unique<MarkedCalls>(syntax_, names, syntax_.style == CallStyle::kMarkedId);
    case CallStyle::kGemma:
      return std::make_unique<GemmaCalls>(syntax_, names);
    case CallStyle::kMiniMaxM3:
      return std::make_unique<MiniMaxM3Calls>(syntax_, names, *options_.tools);
    case CallStyle::kMessages:
      return std::make_unique<FunctionaryMessages>(names, syntax_.openings.front());
    default:
      return std::make_unique<HermesCalls>(names, std::string(closing));
  }
}

bool CallScanner::ScanCalls(std::string_view& text, ChatEvents& out) {
  std::string_view rest = text;
  const CallReader::State state = reader_->Read(rest, out);
  const bool bad = state == CallReader::State::kBad || state == CallReader::State::kNotCall;
  // No event ends within a character.
  while (bad && !rest.empty() && ContinuesCharacter(rest.front())) rest.remove_prefix(1);
  raw_ += text.substr(0, text.size() - rest.size());
  text = rest;
  if (state == CallReader::State::kMore) return false;
  if (bad) FailCall(out);
  after_call_ = !bad;
  after_closing_ = false;
  raw_.clear();
  opening_ = 0;
  const bool goes_on =
      state == CallReader::State::kCallEnded || state == CallReader::State::kNotCall;
  if (!goes_on) reader_.reset();
  return true;
}

// Gives the text of what is not a call back.
void CallScanner::FailCall(ChatEvents& out) {
  std::string raw = std::exchange(raw_, {});
  after_call_ = false;
  any_content_ = true;
  const bool only_opening =
      opening_ > 0 && opening_ + SpaceAtFront(std::string_view(raw).substr(opening_)) == raw.size();
  if (out.in_call()) {
    out.FailCall(raw);
  } else if (only_opening) {
    // Some models write the opening marker twice. space_ is empty since BeginCalls; a copy for each
    // of many markers would take the square of their length.
    space_ = std::move(raw);
  } else {
    AddContent(raw, out);
  }
}

void CallScanner::AddContent(std::string_view text, ChatEvents& out) {
  size_t end = text.size();
  while (end > 0 && IsSpace(text[end - 1])) --end;
  if (end > 0) {
    out.Content(std::exchange(space_, {}));
    out.Content(text.substr(0, end));
    any_content_ = true;
    after_call_ = false;
  }
  space_ += text.substr(end);
}

}  // namespace baton
