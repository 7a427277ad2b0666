#include "common/chat_format/minimax_m3_calls.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "common/base/json.h"

namespace baton {
namespace {

constexpr std::string_view kItem = "item";

// The calls of a section, and the token before each tag.
std::vector<std::string> MarkersIn(const CallSyntax& syntax) {
  std::vector<std::string> markers = syntax.Beginnings();
  markers.push_back(syntax.key_begin);
  return markers;
}

// Where the schema says nothing, a text is a number, a boolean or null where it reads as one.
constexpr ParameterType kWithoutSchema = {
    ValueTypes::kAll.Without(ValueTypes::kArray | ValueTypes::kObject)};

}  // namespace

ParameterType ElementType(NestedTypes& types, const NestedTypes::Schemas& schemas) {
  return schemas.empty() ? kWithoutSchema : types.TypeOf(schemas);
}

std::string_view EmptyElement(ValueTypes types) {
  if (types.Has(ValueTypes::kString)) return "\"\"";
  if (types.Has(ValueTypes::kArray)) return "[]";
  return types.Has(ValueTypes::kObject) ? "{}" : "null";
}

bool ElementIsArray(std::string_view first_tag, ValueTypes types) {
  return first_tag == kItem && (types.Has(ValueTypes::kArray) || !types.Has(ValueTypes::kObject));
}

MiniMaxM3Calls::MiniMaxM3Calls(const CallSyntax& syntax,
                               const CallNames& names,
                               const ToolSchemas& tools)
    : syntax_(syntax),
      tools_(tools),
      names_(names),
      markers_(MarkersIn(syntax)),
      open_{Element{.kind = Element::Kind::kObject}} {}

CallReader::State MiniMaxM3Calls::Read(std::string_view& text, ChatEvents& out) {
  return ReadParts(text, phase_, [&] { return ReadPart(text, out); });
}

CallReader::State MiniMaxM3Calls::ReadPart(std::string_view& text, ChatEvents& out) {
  switch (phase_) {
    case Phase::kName:
      return ReadName(text);
    case Phase::kNameEnd:
      return ReadNameEnd(text);
    case Phase::kText:
      return ReadText(text, out);
    default:
      return ReadTag(text, out);
  }
}

CallReader::State MiniMaxM3Calls::ReadName(std::string_view& text) {
  if (!TakeName(text, name_)) return State::kBad;
  if (text.empty()) return State::kMore;
  phase_ = Phase::kNameEnd;
  return names_.Allow(name_) ? State::kMore : State::kBad;
}

CallReader::State MiniMaxM3Calls::ReadNameEnd(std::string_view& text) {
  const Begins begins = BeginsWith(text, syntax_.name_end);
  if (begins == Begins::kNo) return State::kBad;
  if (begins == Begins::kMaybe) return State::kMore;
  text.remove_prefix(syntax_.name_end.size());
  phase_ = Phase::kText;
  return State::kMore;
}

CallReader::State MiniMaxM3Calls::ReadText(std::string_view& text, ChatEvents& out) {
  const Markers::Found found = markers_.Find(text);
  std::string_view part = text.substr(0, found.at);
  const bool good = AddText(part, out);
  text.remove_prefix(found.at - part.size());
  if (!good) return State::kBad;
  if (found.marker < 0) return State::kMore;
  // Another call, or a section of calls, is not a part of this call.
  if (markers_[found.marker] != syntax_.key_begin) return State::kBad;
  text.remove_prefix(syntax_.key_begin.size());
  phase_ = Phase::kTag;
  return State::kMore;
}

// False: there may be no text here, apart from white space.
bool MiniMaxM3Calls::AddText(std::string_view& text, ChatEvents& out) {
  Element& element = open_.back();
  const bool empty = element.kind == Element::Kind::kEmpty;
  const bool begun = element.kind == Element::Kind::kText;
  // A string has its white space; elsewhere white space may precede the tags of members.
  if (!begun && !(empty && element.type.is_text())) text.remove_prefix(SpaceAtFront(text));
  if (text.empty()) return true;
  if (!begun && !empty) return false;
  if (empty) value_.emplace(element.type, /*in_lines=*/false);
  element.kind = Element::Kind::kText;
  value_->Append(text, out);
  text = {};
  return true;
}

CallReader::State MiniMaxM3Calls::ReadTag(std::string_view& text, ChatEvents& out) {
  if (tag_.empty() && text.front() != '<') return State::kBad;
  const size_t end = std::min(text.find_first_of(std::string_view(">\xFF")), text.size());
  const size_t length = std::min(end, kMaxCallNameBytes - tag_.size());
  tag_ += text.substr(0, length);
  text.remove_prefix(length);
  if (length < end) return State::kBad;
  if (text.empty()) return State::kMore;
  if (text.front() == kSpecialSign) return State::kBad;
  text.remove_prefix(1);
  const std::string taken = std::exchange(tag_, {});
  std::string_view tag = std::string_view(taken).substr(1);
  phase_ = Phase::kText;
  if (!tag.starts_with('/')) return BeginElement(tag, out) ? State::kMore : State::kBad;
  tag.remove_prefix(1);
  return EndElements(tag, out);
}

void MiniMaxM3Calls::BeginCall(ChatEvents& out) {
  if (types_.has_value()) return;
  types_.emplace(tools_.SchemaOf(name_));
  open_.front().schemas = types_->Arguments();
  out.BeginCall(name_);
  out.Arguments("{");
}

bool MiniMaxM3Calls::BeginElement(std::string_view tag, ChatEvents& out) {
  if (tag.empty()) return false;
  BeginCall(out);
  last_.clear();
  if (open_.back().kind == Element::Kind::kText) EndElement(out);
  if (open_.back().kind == Element::Kind::kEmpty && !BeginMembers(tag, out)) return false;
  Element& parent = open_.back();
  const bool in_array = parent.kind == Element::Kind::kArray;
  if (in_array && tag != kItem) return false;
  std::string json = std::exchange(parent.any, true) ? ", " : "";
  if (!in_array) {
    json += '"';
    AppendEscaped(tag, json);
    json += "\": ";
  }
  out.Arguments(json);
  open_.push_back(ElementOf(tag));
  return true;
}

// A new element in the last one.
MiniMaxM3Calls::Element MiniMaxM3Calls::ElementOf(std::string_view tag) {
  const Element& parent = open_.back();
  Element element = {.tag = std::string(tag)};
  element.schemas = parent.kind == Element::Kind::kArray ? types_->ItemOf(parent.schemas)
                                                         : types_->MemberOf(parent.schemas, tag);
  element.type = ElementType(*types_, element.schemas);
  return element;
}

// The last element is an object or an array; `first_tag` is the first tag in it.
bool MiniMaxM3Calls::BeginMembers(std::string_view first_tag, ChatEvents& out) {
  if (open_.size() > static_cast<size_t>(kMaxJsonDepth)) return false;
  Element& element = open_.back();
  const bool array = ElementIsArray(first_tag, element.type.types);
  element.kind = array ? Element::Kind::kArray : Element::Kind::kObject;
  out.Arguments(array ? "[" : "{");
  return true;
}

CallReader::State MiniMaxM3Calls::EndElements(std::string_view tag, ChatEvents& out) {
  size_t element = open_.size() - 1;
  while (element > 0 && open_[element].tag != tag) --element;
  const bool ends_call =
      element == 0 && syntax_.IsClosing(fmt::format("{}</{}>", syntax_.key_begin, tag));
  if (element == 0 && !ends_call) {
    const bool repeated = types_.has_value() && !tag.empty() && tag == last_;
    if (repeated) return State::kMore;  // a second closing tag is dropped
    if (open_.size() == 1) return State::kBad;
    element = open_.size() - 1;
  }
  BeginCall(out);
  last_ = tag;
  while (open_.size() > std::max<size_t>(element, 1)) EndElement(out);
  if (!ends_call) return State::kMore;
  out.Arguments("}");
  out.EndCall();
  return State::kDone;
}

void MiniMaxM3Calls::EndElement(ChatEvents& out) {
  const Element& element = open_.back();
  switch (element.kind) {
    case Element::Kind::kEmpty:
      out.Arguments(EmptyElement(element.type.types));
      break;
    case Element::Kind::kText:
      value_->Finish(out);
      break;
    case Element::Kind::kObject:
      out.Arguments("}");
      break;
    case Element::Kind::kArray:
      out.Arguments("]");
      break;
  }
  open_.pop_back();
}

}  // namespace baton
