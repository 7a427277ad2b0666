#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "common/base/status.h"
#include "common/text/text_segment.h"

namespace baton {

struct RenderLimits {
  uint64_t max_steps = 10'000'000;        // evaluated expressions and similar; about 1 s of work
  size_t max_memory = size_t{256} << 20;  // bytes of live values
  size_t max_output = size_t{64} << 20;   // bytes
};

struct RenderOptions {
  RenderLimits limits;
  std::chrono::system_clock::time_point now;  // for strftime_now(), in UTC
  std::function<bool()> cancelled;            // returns true to end the rendering; may be empty
};

// A model's chat template: Jinja as Hugging Face runs it (immutable sandbox, trim_blocks,
// lstrip_blocks, loop controls, its own tojson). Immutable, so thread-safe; copies share the parsed
// template.
class ChatTemplate final {
 public:
  // Errors: InvalidArgument with the line; Unimplemented for tags that need other files.
  static StatusOr<ChatTemplate> Parse(std::string_view source);

  // Renders the prompt for `context`, an object with `messages`, `add_generation_prompt`,
  // `bos_token` …: the variables that Hugging Face's apply_chat_template passes to the template.
  // Errors: InvalidArgument with the template's line (also for raise_exception), ResourceExhausted
  // over a limit, Cancelled.
  StatusOr<std::string> Render(const nlohmann::ordered_json& context,
                               const RenderOptions& options) const;

  // The same prompt in maximal segments, for Tokenizer::EncodeSegments. Text of the template itself
  // and of top-level *_token strings is trusted; text of messages, tools and other values is
  // untrusted.
  StatusOr<std::vector<TextSegment>> RenderSegments(const nlohmann::ordered_json& context,
                                                    const RenderOptions& options) const;

  const std::string& source() const;

 private:
  struct State;
  std::shared_ptr<const State> state_;
};

}  // namespace baton
