#include "common/chat_format/harmony_parser.h"

#include <utility>

#include "common/chat_format/chat_format.h"

namespace baton {
namespace {

constexpr std::string_view kChannel = "<|channel|>";
constexpr std::string_view kMessage = "<|message|>";
constexpr std::string_view kStart = "<|start|>";
constexpr std::string_view kRecipient = "to=";
constexpr std::string_view kFunctions = "functions.";

// The word behind `sign` in a header; empty if there is none.
std::string_view WordBehind(std::string_view header, std::string_view sign) {
  const size_t at = header.find(sign);
  if (at == std::string_view::npos) return {};
  const std::string_view rest = header.substr(at + sign.size());
  return rest.substr(0, rest.find_first_of(" \n\t<"));
}

}  // namespace

HarmonyParser::HarmonyParser(const Options& options)
    : options_(options), markers_(TokensOf(ToolCallFormat::kHarmony)) {}

void HarmonyParser::Append(std::string_view text, ChatEvents& out) {
  const std::string all = std::exchange(held_, {}) + std::string(text);
  std::string_view rest = all;
  while (!rest.empty()) {
    const Markers::Found found = markers_.Find(rest);
    OnText(rest.substr(0, found.at), out);
    rest.remove_prefix(found.at);
    if (found.marker < 0) break;
    rest.remove_prefix(markers_[found.marker].size());
    OnMarker(markers_[found.marker], out);
  }
  held_ = rest;
}

void HarmonyParser::Finish(ChatEvents& out) {
  OnText(std::exchange(held_, {}), out);
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

// A header begins with a marker, or with the recipient; other text has no header.
void HarmonyParser::AddToHeader(std::string_view text, ChatEvents& out) {
  header_ += text;
  while (spaces_ < header_.size() && IsSpace(header_[spaces_])) ++spaces_;
  const std::string_view begin = std::string_view(header_).substr(spaces_);
  const bool in_header =
      begin.starts_with(kStart) || begin.starts_with(kChannel) || begin.starts_with(kRecipient);
  if (in_header || kRecipient.starts_with(begin)) return;
  phase_ = Phase::kContent;
  spaces_ = 0;
  out.Content(std::exchange(header_, {}));
}

void HarmonyParser::OnMarker(std::string_view marker, ChatEvents& out) {
  if (phase_ == Phase::kHeader) {
    header_ += marker;
    if (marker == kMessage) BeginMessage(out);
    return;
  }
  EndMessage(marker, out);
  if (marker == kStart || marker == kChannel) header_ = marker;
}

void HarmonyParser::BeginMessage(ChatEvents& out) {
  std::string_view recipient = WordBehind(header_, kRecipient);
  if (recipient.starts_with(kFunctions)) recipient.remove_prefix(kFunctions.size());
  const std::string_view channel = WordBehind(header_, kChannel);
  if (options_.calls && !recipient.empty() && recipient != "assistant") {
    out.BeginCall(recipient);
    raw_ = header_;
    arguments_ = {};
    phase_ = Phase::kCall;
  } else {
    phase_ = channel == "analysis" && options_.reasoning ? Phase::kReasoning : Phase::kContent;
  }
  header_.clear();
  spaces_ = 0;
}

void HarmonyParser::AddArguments(std::string_view text, ChatEvents& out) {
  size_t length = arguments_.Scan(text);
  out.Arguments(text.substr(0, length));
  const bool bad = arguments_.state() == JsonScanner::State::kBad;
  while (!bad && length < text.size() && IsSpace(text[length])) ++length;
  raw_ += text.substr(0, length);
  if (length == text.size() && !bad) return;
  FailCall(out);
  out.Content(text.substr(length));
}

void HarmonyParser::FailCall(ChatEvents& out) {
  out.FailCall(std::exchange(raw_, {}));
  phase_ = Phase::kContent;
}

void HarmonyParser::EndMessage(std::string_view marker, ChatEvents& out) {
  if (phase_ == Phase::kHeader) {
    // A header that was cut off.
    return out.Content(std::exchange(header_, {}));
  }
  if (phase_ == Phase::kCall) {
    if (raw_.ends_with(kMessage)) {
      arguments_.Scan("{}");
      out.Arguments("{}");
    }
    raw_ += marker;
    if (arguments_.Finish() == JsonScanner::State::kDone) {
      out.EndCall();
    } else {
      FailCall(out);
    }
  }
  phase_ = Phase::kHeader;
}

}  // namespace baton
