#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace baton {

// How a model writes calls of tools.
enum class ToolCallFormat : uint8_t {
  kNone,
  kHermes,     // Hermes 2 Pro, Qwen 2.5, Qwen 3
  kLlamaJson,  // Llama 3.1 and later
  kPythonic,   // Llama 3.2 and 4
  kMistral,
  kQwenCoder,  // XML of Qwen3-Coder
  kDeepSeek,   // DeepSeek V3, R1 and V3.1
  kDsml,       // DeepSeek V3.2
  kGlm,        // GLM 4.5 and later
  kKimi,       // Kimi K2
  kHarmony,    // gpt-oss; for reasoning, too
  kGemma,      // Gemma 4
  kMiniMaxM3,
  kFunctionaryMessages,  // Functionary 3.2
};

// How a model marks its reasoning.
enum class ReasoningFormat : uint8_t {
  kNone,
  kThink,         // <think>…</think>
  kMistralThink,  // [THINK]…[/THINK]
  kSeedThink,     // <seed:think>…</seed:think>
  kHarmony,       // the channel "analysis"
  kGemmaThought,  // <|channel>thought…<channel|>
  kMiniMaxThink,  // <mm:think>…</mm:think>
};

// The formats of a chat template, found by the markers that the template writes or mentions.
ToolCallFormat ToolCallFormatOf(std::string_view chat_template);
ReasoningFormat ReasoningFormatOf(std::string_view chat_template);

// The opening and the closing marker of reasoning between markers; nullopt for other formats.
struct ReasoningMarkers {
  std::string_view begin;
  std::string_view end;
};
std::optional<ReasoningMarkers> MarkersOf(ReasoningFormat format);

// Whether a prompt that ends with `end` leaves the model inside of its reasoning: the opening
// marker is the last text. `continues`: the model continues `end`, so text may follow the opening
// marker.
bool BeginsReasoning(ReasoningFormat format, std::string_view end, bool continues = false);

// Whether a prompt that ends with `end` leaves no reasoning to the model: it ends with the closing
// marker, as templates write it to switch reasoning off.
bool EndsReasoning(ReasoningFormat format, std::string_view end);

// Whether a model with this template begins to reason where the prompt has no opening marker: when
// the template has a variable that switches reasoning off, or says how to reason. Other templates
// only mention the markers, to leave out the reasoning of earlier answers.
bool MayBeginReasoning(ReasoningFormat format, std::string_view chat_template);

// All markers of a format. Those that are special tokens of a vocabulary must stay in the text for
// the parser.
std::vector<std::string_view> TokensOf(ToolCallFormat format);
std::vector<std::string_view> TokensOf(ReasoningFormat format);

}  // namespace baton
