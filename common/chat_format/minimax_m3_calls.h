#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/chat_format/call_names.h"
#include "common/chat_format/call_reader.h"
#include "common/chat_format/call_syntax.h"
#include "common/chat_format/markers.h"
#include "common/chat_format/nested_types.h"
#include "common/chat_format/tagged_value.h"
#include "common/chat_format/tool_schemas.h"

namespace baton {

// How the reader takes an element, which the schemas describe.
ParameterType ElementType(NestedTypes& types, const NestedTypes::Schemas& schemas);
// An element of the types without text and without members, as JSON: the template writes "", [] and
// {} as one.
std::string_view EmptyElement(ValueTypes types);
// Whether an element of the types, whose first member is `first_tag`, is an array; else it is an
// object.
bool ElementIsArray(std::string_view first_tag, ValueTypes types);

// Reads one call of MiniMax M3 behind the opening marker (https://huggingface.co/MiniMaxAI):
// f"><text>two words</text><list><item>1</item></list></invoke>, with the token ]<]minimax[>[
// before each tag. The name of a parameter is its tag; an object has the tags of its members, an
// array has <item>s. A text without its closing tag ends at the next tag; the end of an outer
// element, or of the call, ends all elements in it. A closing tag of another name ends the last
// element.
class MiniMaxM3Calls final : public CallReader {
 public:
  // `syntax` and `tools`, which states the types of parameters, outlive the reader.
  MiniMaxM3Calls(const CallSyntax& syntax, const CallNames& names, const ToolSchemas& tools);

  State Read(std::string_view& text, ChatEvents& out) override;
  State Finish(ChatEvents&) override { return State::kBad; }

 private:
  enum class Phase : uint8_t { kName, kNameEnd, kText, kTag };

  struct Element {
    enum class Kind : uint8_t { kEmpty, kText, kObject, kArray };

    std::string tag = {};
    NestedTypes::Schemas schemas = {};
    ParameterType type = {};
    Kind kind = Kind::kEmpty;  // so far
    bool any = false;          // an object or array with a member
  };

  State ReadPart(std::string_view& text, ChatEvents& out);
  State ReadName(std::string_view& text);
  State ReadNameEnd(std::string_view& text);
  State ReadText(std::string_view& text, ChatEvents& out);
  bool AddText(std::string_view& text, ChatEvents& out);
  State ReadTag(std::string_view& text, ChatEvents& out);
  void BeginCall(ChatEvents& out);
  bool BeginElement(std::string_view tag, ChatEvents& out);
  Element ElementOf(std::string_view tag);
  bool BeginMembers(std::string_view first_tag, ChatEvents& out);
  State EndElements(std::string_view tag, ChatEvents& out);
  void EndElement(ChatEvents& out);

  const CallSyntax& syntax_;
  const ToolSchemas& tools_;
  const CallNames names_;
  const Markers markers_;
  Phase phase_ = Phase::kName;
  std::string name_;
  std::string tag_;                   // so far
  std::vector<Element> open_;         // the first is the object of arguments
  std::optional<TaggedValue> value_;  // of the last, a text
  std::string last_;                  // the tag of the element that has ended last
  std::optional<NestedTypes> types_;  // of a call that has begun
};

}  // namespace baton
