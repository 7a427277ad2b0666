#include "common/chat_format/harmony_parser.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "common/chat_format/call_arguments.h"
#include "common/chat_format/call_names.h"
#include "common/chat_format/chat_format.h"

namespace baton {
namespace {

constexpr std::string_view kRecipient = "to=";
constexpr std::string_view kFunctions = "functions.";
constexpr std::string_view kAssistant = "assistant";
constexpr size_t kMaxHeaderBytes = 4096;

std::vector<std::string> SignedTokens(const SpecialMarkers& special) {
  std::vector<std::string> tokens;
  for (const std::string_view token : TokensOf(ToolCallFormat::kHarmony)) {
    tokens.push_back(special.Signed(token));
  }
  return tokens;
}

bool MayBeNoArguments(std::string_view text) {
  return std::ranges::any_of(kNoArguments,
                             [&](std::string_view literal) { return literal.starts_with(text); });
}

bool IsName(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, IsNameByte);
}

}  // namespace

HarmonyParser::HarmonyParser(const Options& options, const SpecialMarkers& special)
    : options_(options), markers_(SignedTokens(special)) {}

void HarmonyParser::Append(std::string_view text, ChatEvents& out) {
  std::string joined = std::exchange(held_, {});
  if (!joined.empty()) text = joined += text;
  while (!text.empty()) {
    const Markers::Found found = markers_.Find(text);
    OnText(text.substr(0, found.at), out);
    text.remove_prefix(found.at);
    if (found.marker < 0) break;
    const std::string_view marker = markers_[found.marker];
    text.remove_prefix(marker.size());
    OnMarker(static_cast<Marker>(found.marker), marker, out);
  }
  held_ = text;
}

void HarmonyParser::Finish(ChatEvents& out) {
  OnText(std::exchange(held_, {}), out);
  if (phase_ == Phase::kHeader) DropHeader(out);
  EndMessage("", out);
}

void HarmonyParser::OnText(std::string_view text, ChatEvents& out) {
  if (text.empty()) return;
  switch (phase_) {
    case Phase::kHeader:
      AddToHeader(text, out);
      break;
    case Phase::kContent:
      out.Content(text);
      break;
    case Phase::kReasoning:
      out.Reasoning(text);
      break;
    case Phase::kCall:
      AddArguments(text, out);
      break;
  }
}

void HarmonyParser::OnMarker(Marker marker, std::string_view text, ChatEvents& out) {
  if (phase_ == Phase::kHeader) return OnHeaderMarker(marker, text, out);
  if (IsText(marker, text)) return OnText(text, out);
  EndMessage(text, out);
  if (marker == Marker::kStart || marker == Marker::kChannel) OnHeaderMarker(marker, text, out);
}

bool HarmonyParser::IsText(Marker marker, std::string_view text) const {
  const bool special = text.front() == kSpecialSign;
  if (phase_ == Phase::kCall && !special && arguments_.in_string()) return true;
  return marker == Marker::kMessage || marker == Marker::kConstrain;
}

// A header begins with a marker, or with the recipient; other text has no header.
void HarmonyParser::AddToHeader(std::string_view text, ChatEvents& out) {
  header_ += text;
  if (MayBeHeader()) return;
  phase_ = Phase::kContent;
  out.Content(TakeHeader());
}

bool HarmonyParser::MayBeHeader() {
  while (spaces_ < header_.size() && IsSpace(header_[spaces_])) ++spaces_;
  const std::string_view begin = std::string_view(header_).substr(spaces_);
  if (has_marker_ || kRecipient.starts_with(begin)) return begin.size() <= kMaxHeaderBytes;
  if (!begin.starts_with(kRecipient) || begin.size() > kMaxHeaderBytes) return false;
  // A marker follows the recipient at once.
  const size_t end = std::min(begin.find_first_of(" \n\t\r"), begin.size());
  return end + SpaceAtFront(begin.substr(end)) == begin.size();
}

void HarmonyParser::OnHeaderMarker(Marker marker, std::string_view text, ChatEvents& out) {
  switch (marker) {
    case Marker::kStart:
      DropHeader(out);
      break;
    case Marker::kMessage:
      header_ += text;
      return BeginMessage(out);
    case Marker::kChannel:
    case Marker::kConstrain:
      break;
    default:
      return DropHeader(out);
  }
  has_marker_ = true;
  AddToHeader(text, out);
}

// Nothing is lost with a second <|end|>, or with a header that says only who writes.
void HarmonyParser::DropHeader(ChatEvents& out) {
  const std::string header = TakeHeader();
  std::string_view words = Trimmed(header);
  const std::string& start = markers_[static_cast<int>(Marker::kStart)];
  if (words.starts_with(start)) {
    words = Trimmed(words.substr(start.size()));
    if (words == kAssistant) return;
  }
  if (!words.empty()) out.Content(header);
}

std::string HarmonyParser::TakeHeader() {
  spaces_ = 0;
  has_marker_ = false;
  return std::exchange(header_, {});
}

std::string_view HarmonyParser::WordBehind(std::string_view sign) const {
  const size_t at = header_.rfind(sign);
  if (at == std::string::npos) return {};
  const std::string_view rest = std::string_view(header_).substr(at + sign.size());
  return rest.substr(0, rest.find_first_of(std::string_view(" \n\t\r<\xFF")));
}

// Between two markers of a header are at most a channel, a recipient and a type.
bool HarmonyParser::IsHeader() const {
  constexpr int kMaxWords = 3;
  std::string_view rest = header_;
  while (!rest.empty()) {
    const Markers::Found found = markers_.Find(rest, /*last=*/true);
    std::string_view words = Trimmed(rest.substr(0, found.at));
    for (int word = 0; !words.empty(); ++word) {
      const size_t end = std::min(words.find_first_of(" \n\t\r"), words.size());
      if (word == kMaxWords || !IsName(words.substr(0, end))) return false;
      words = Trimmed(words.substr(end));
    }
    rest.remove_prefix(found.at);
    if (found.marker >= 0) rest.remove_prefix(markers_[found.marker].size());
  }
  return true;
}

void HarmonyParser::BeginMessage(ChatEvents& out) {
  std::string_view recipient = WordBehind(kRecipient);
  if (recipient.starts_with(kFunctions)) recipient.remove_prefix(kFunctions.size());
  const std::string_view channel = WordBehind(markers_[static_cast<int>(Marker::kChannel)]);
  const bool to_tool = options_.calls && IsName(recipient) && recipient != kAssistant;
  const bool is_call = to_tool && (!options_.offered_only || options_.tools->Has(recipient));
  // A call that may not be made is content with its header.
  const bool is_header = IsHeader() && is_call == to_tool;
  if (!is_header) out.Content(header_);
  if (is_call) {
    out.BeginCall(recipient);
    raw_ = is_header ? header_ : "";
    arguments_ = {};
    first_ = 0;
    other_.clear();
    phase_ = Phase::kCall;
  } else {
    const bool reasons = channel == "analysis" && options_.reasoning && !to_tool;
    phase_ = reasons ? Phase::kReasoning : Phase::kContent;
  }
  TakeHeader();
}

void HarmonyParser::AddArguments(std::string_view text, ChatEvents& out) {
  if (first_ == 0) {
    const size_t space = SpaceAtFront(text);
    raw_ += text.substr(0, space);
    text.remove_prefix(space);
    if (text.empty()) return;
    first_ = text.front();
  }
  const bool object = first_ == '{';
  const size_t length = arguments_.Scan(text);
  if (object) out.Arguments(text.substr(0, length));
  (object ? raw_ : other_) += text.substr(0, length);
  text.remove_prefix(length);
  bool good = arguments_.state() != JsonScanner::State::kBad;
  if (!object && !other_.empty()) good &= MayBeNoArguments(other_);
  if (good && arguments_.state() == JsonScanner::State::kDone) {
    raw_ += std::exchange(other_, {});
    const size_t space = SpaceAtFront(text);
    raw_ += text.substr(0, space);
    text.remove_prefix(space);
  }
  if (good && text.empty()) return;
  FailCall(out);
  phase_ = Phase::kContent;
  out.Content(std::exchange(other_, {}));
  out.Content(text);
}

void HarmonyParser::FailCall(ChatEvents& out) {
  out.FailCall(std::exchange(raw_, {}));
}

void HarmonyParser::EndMessage(std::string_view marker, ChatEvents& out) {
  if (std::exchange(phase_, Phase::kHeader) != Phase::kCall) return;
  const bool none =
      first_ == 0 || (first_ != '{' && arguments_.state() == JsonScanner::State::kDone);
  if (none) out.Arguments("{}");
  if (none || arguments_.Finish() == JsonScanner::State::kDone) return out.EndCall();
  raw_ += other_;
  raw_ += marker;
  FailCall(out);
}

}  // namespace baton
