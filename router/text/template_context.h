#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "common/base/status.h"
#include "common/text/chat_template.h"
#include "common/text/text_segment.h"
#include "common/text/tokenizer.h"
#include "router/generation.h"

namespace baton::router {

struct TemplateInput {
  const ChatInput& chat;
  const FieldNames& names;
  const Tokenizer& tokenizer;
  std::string_view source;  // of the template
  bool reasons = false;     // the model is known to reason
};

// The variables that a chat template gets, as from a Hugging Face tokenizer. Errors:
// InvalidArgument naming the member at fault.
StatusOr<nlohmann::ordered_json> TemplateContext(const TemplateInput& input);

// Renders the prompt. Where the template fails, renders it again with what older templates expect,
// to which `context` is changed: no null contents, which clients send with messages that only call
// tools, and the arguments of calls as JSON text. Errors: as ChatTemplate::RenderSegments.
StatusOr<std::vector<TextSegment>> RenderChat(const ChatTemplate& chat_template,
                                              nlohmann::ordered_json& context,
                                              const RenderOptions& options);

// For a chat with continue_final_message: removes the text that the template wrote after the
// content of the last message. Like Hugging Face's apply_chat_template, also removes the content's
// trailing white space if the template does.
Status CutAtContinueMark(std::vector<TextSegment>& prompt);

}  // namespace baton::router
