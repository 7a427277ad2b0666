#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "common/chat_format/bracket_skipper.h"
#include "common/chat_format/call_reader.h"
#include "common/chat_format/json_call.h"
#include "common/chat_format/markers.h"

namespace baton {

// The format of Hermes 2 Pro, Qwen 2.5 and Qwen 3: <tool_call> JSON </tool_call>
// (https://github.com/NousResearch/Hermes-Function-Calling). A call whose last brace is missing
// ends at the closing tag.
class HermesCalls final : public CallReader {
 public:
  // `end`: the closing tag.
  HermesCalls(const CallNames& names, std::string end)
      : call_(names, false), end_(std::move(end)) {}

  State Read(std::string_view& text, ChatEvents& out) override;
  State Finish(ChatEvents&) override { return State::kBad; }

 private:
  JsonCall call_;
  const std::string end_;
  bool begun_ = false;
};

// A list of JSON calls. In the format of Llama 3.1 and later, semicolons, commas or white space
// separate the calls (https://www.llama.com/docs/model-cards-and-prompt-formats/llama3_1). In an
// array, ']' ends the list. A call that is bad costs itself only.
class JsonCallList final : public CallReader {
 public:
  struct Options {
    bool in_array = false;      // behind '['
    bool bare = false;          // as in JsonCall; the first call must not be bad
    std::string_view end = {};  // ends a list that is no array; is not read
  };
  JsonCallList(const CallNames& names, const Options& options) : names_(names), options_(options) {}

  State Read(std::string_view& text, ChatEvents& out) override;
  State Finish(ChatEvents& out) override;

 private:
  State ReadCall(std::string_view& text, ChatEvents& out);
  Begins AtEnd(std::string_view text) const;
  State TakeBetween(char c) const;

  const CallNames names_;
  const Options options_;
  std::optional<JsonCall> call_;
  std::optional<BracketSkipper> bad_;  // the rest of a bad call
  bool any_ = false;                   // a call has ended
  bool after_bad_ = false;             // the last call was bad
};

// JSON calls behind an opening marker, in an array or one behind the other. Apriel, MiniMax M1:
// <tool_calls>…</tool_calls> (https://huggingface.co/ServiceNow-AI/Apriel-1.6-15b-Thinker,
// https://huggingface.co/MiniMaxAI/MiniMax-M1-80k); Nemotron Nano 2: <TOOLCALL>…</TOOLCALL>
// (https://huggingface.co/nvidia/NVIDIA-Nemotron-Nano-9B-v2); Granite 3: <|tool_call|>…
// (https://huggingface.co/ibm-granite/granite-3.3-8b-instruct); Command R7B and A:
// <|START_ACTION|>…<|END_ACTION|> (https://docs.cohere.com/docs/tool-use-overview).
class JsonListCalls final : public CallReader {
 public:
  // `end`: the closing marker, or nothing. Outlives the reader.
  JsonListCalls(const CallNames& names, std::string_view end) : names_(names), end_(end) {}

  State Read(std::string_view& text, ChatEvents& out) override;
  State Finish(ChatEvents& out) override;

 private:
  const CallNames names_;
  const std::string_view end_;
  std::optional<JsonCallList> list_;
};

}  // namespace baton
