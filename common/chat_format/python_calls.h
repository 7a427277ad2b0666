#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "common/chat_format/bracket_skipper.h"
#include "common/chat_format/call_names.h"
#include "common/chat_format/call_reader.h"
#include "common/chat_format/python_value.h"

namespace baton {

// The pythonic format of Llama 3.2 and 4: [f(a="x", b=[1, 2]), g()]. Arguments are literals with
// names (https://www.llama.com/docs/model-cards-and-prompt-formats/llama4). A call that is bad
// behind its name costs itself only.
class PythonCalls final : public CallReader {
 public:
  explicit PythonCalls(const CallNames& names) : names_(names) {}

  State Read(std::string_view& text, ChatEvents& out) override;
  State Finish(ChatEvents& out) override;

 private:
  enum class Phase : uint8_t {
    kBegin,
    kBeforeName,
    kName,
    kKeyOrEnd,
    kKey,
    kValue,
    kAfterValue,
    kAfterCall,
  };

  State TakeByte(char c, ChatEvents& out);
  bool BeginCall(ChatEvents& out);
  void BeginValue(ChatEvents& out);
  State EndCall(ChatEvents& out);
  State EndBadCall();
  State SkipCall(size_t depth, char quote);
  State EndList() const;

  const CallNames names_;
  Phase phase_ = Phase::kBegin;
  PythonValue value_;
  std::string word_;                   // the name or key so far
  bool first_ = true;                  // the next argument is the first of its call
  bool any_ = false;                   // a call has ended
  bool after_bad_ = false;             // the last call was bad
  std::optional<BracketSkipper> bad_;  // the rest of a bad call
};

}  // namespace baton
