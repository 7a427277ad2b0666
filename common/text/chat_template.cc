#include "common/text/chat_template.h"

#include <utility>

#include <nlohmann/json.hpp>

#include "common/text/jinja/ast.h"
#include "common/text/jinja/interpreter.h"
#include "common/text/jinja/parser.h"

namespace baton {

struct ChatTemplate::State {
  std::string source;
  jinja::Block block;
};

namespace {

StatusOr<jinja::MarkedText> Run(const jinja::Block& block,
                                const nlohmann::ordered_json& context,
                                const RenderOptions& options) {
  jinja::Interpreter interpreter({.max_steps = options.limits.max_steps,
                                  .max_memory = options.limits.max_memory,
                                  .max_output = options.limits.max_output,
                                  .now = options.now,
                                  .cancelled = options.cancelled});
  return interpreter.Run(block, context);
}

}  // namespace

StatusOr<ChatTemplate> ChatTemplate::Parse(std::string_view source) {
  constexpr size_t kLongestSource = size_t{1} << 20;
  if (source.size() > kLongestSource) {
    return InvalidArgument(
        "the chat template has {} bytes; at most {} are accepted", source.size(), kLongestSource);
  }
  auto state = std::make_shared<State>();
  state->source = source;
  BATON_ASSIGN_OR_RETURN(state->block, jinja::Parse(source));
  ChatTemplate result;
  result.state_ = std::move(state);
  return result;
}

StatusOr<std::string> ChatTemplate::Render(const nlohmann::ordered_json& context,
                                           const RenderOptions& options) const {
  BATON_ASSIGN_OR_RETURN(const jinja::MarkedText text, Run(state_->block, context, options));
  return text.text();
}

StatusOr<std::vector<TextSegment>> ChatTemplate::RenderSegments(
    const nlohmann::ordered_json& context, const RenderOptions& options) const {
  BATON_ASSIGN_OR_RETURN(const jinja::MarkedText text, Run(state_->block, context, options));
  return text.Segments();
}

const std::string& ChatTemplate::source() const {
  return state_->source;
}

}  // namespace baton
