#include <cstdint>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "common/base/check.h"
#include "common/text/chat_template.h"
#include "common/text/utf8.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace baton;  // NOLINT(google-build-using-namespace)
  if (size > 8192) return 0;
  static const auto* context = new nlohmann::ordered_json(nlohmann::ordered_json::parse(R"({
    "messages": [{"role": "system", "content": " Be brief. "}, {"role": "user", "content": "é <|x|> {{ 1 }}"},
                 {"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f", "arguments": {"a": 1.5}}}]}],
    "tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
    "add_generation_prompt": true, "bos_token": "<s>", "l": [3, 1, 2], "d": {"b": 1, "a": [true, null]}, "s": "a,b"})"));
  const std::string_view source(reinterpret_cast<const char*>(data), size);
  const auto parsed = ChatTemplate::Parse(source);
  if (!parsed.ok()) {
    BATON_CHECK(!Message(parsed.status()).empty(), "an error without a message");
    return 0;
  }
  RenderOptions options;
  options.limits = {.max_steps = 20'000, .max_memory = 4 << 20, .max_output = 1 << 20};
  const auto text = parsed->Render(*context, options);
  const auto segments = parsed->RenderSegments(*context, options);
  BATON_CHECK(text.ok() == segments.ok(), "Render and RenderSegments differ");
  if (!text.ok()) return 0;
  BATON_CHECK(text->size() <= options.limits.max_output, "{} bytes", text->size());
  BATON_CHECK(IsValidUtf8(*text), "the text is not valid UTF-8");
  std::string joined;
  for (const TextSegment& segment : *segments) {
    BATON_CHECK(IsValidUtf8(segment.text), "a segment cuts a character");
    joined += segment.text;
  }
  BATON_CHECK(joined == *text, "the segments are not the text");
  return 0;
}
