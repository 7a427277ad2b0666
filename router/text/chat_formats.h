#pragma once

#include <string>

#include "common/chat_format/chat_format.h"
#include "common/text/chat_template.h"
#include "common/text/tokenizer.h"

namespace baton::router {

// How the model writes calls and reasoning.
struct ChatFormats {
  ToolCallFormat calls = ToolCallFormat::kNone;
  ReasoningFormat reasoning = ReasoningFormat::kNone;
  // The model may reason where the prompt has no opening marker.
  bool may_begin_reasoning = true;
  // With kNone: what the template prints as a call, shortened; empty if it prints none.
  std::string unknown_call = {};

  // Why requests cannot offer tools, with kNone.
  std::string WhyNoCalls() const;
};

// The formats of a model with this template. A format of calls is proven: the template prints a
// chat with calls of a tool, and the format's parser must give back these calls and nothing else.
// Of a template that prints no calls, its words to the model count.
ChatFormats FindChatFormats(const ChatTemplate& chat_template, const Tokenizer& tokenizer);

}  // namespace baton::router
