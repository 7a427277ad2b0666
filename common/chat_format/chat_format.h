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
  kQwenCoder,    // XML of Qwen3-Coder
  kDeepSeek,     // DeepSeek V3, R1 and V3.1
  kDsml,         // DeepSeek V3.2
  kGlm,          // GLM 4.5 and later
  kKimi,         // Kimi K2
  kHarmony,      // gpt-oss; for reasoning, too
  kApriel,       // Apriel, MiniMax M1
  kNemotron,     // Nemotron Nano 2
  kGranite,      // Granite 3
  kCohere,       // Command R7B and A
  kLfm2,         // LFM2
  kMiniMax,      // MiniMax M2
  kFunctionary,  // Functionary 3.1
  kKimiK3,
  kDeepSeekV4,
  kGemma,  // Gemma 4
  kMiniMaxM3,
  kFunctionaryMessages,  // Functionary 3.2
};
constexpr ToolCallFormat kLastToolCallFormat = ToolCallFormat::kFunctionaryMessages;

// How a model marks its reasoning.
enum class ReasoningFormat : uint8_t {
  kNone,
  kThink,         // <think>…</think>
  kMistralThink,  // [THINK]…[/THINK]
  kSeedThink,     // <seed:think>…</seed:think>
  kHarmony,       // the channel "analysis"
  kCohereThink,  // <|START_THINKING|>…<|END_THINKING|>, then <|START_RESPONSE|>…<|END_RESPONSE|>
  kKimiK3Think,   // <|open|>think<|sep|>…<|close|>think<|sep|>, then the channel "response"
  kAprielThink,   // Here are my reasoning steps:…[BEGIN FINAL RESPONSE]
  kGemmaThought,  // <|channel>thought…<channel|>
  kMiniMaxThink,  // <mm:think>…</mm:think>
};
constexpr ReasoningFormat kLastReasoningFormat = ReasoningFormat::kMiniMaxThink;

// As in the settings tool_call_format and reasoning_format.
std::string_view NameOf(ToolCallFormat format);
std::string_view NameOf(ReasoningFormat format);

// The format of calls that a chat template describes to the model, found by its words. For
// templates that print no calls: of others, what they print counts (router/text/chat_formats.h).
ToolCallFormat DescribedCallFormat(std::string_view chat_template);
// The format of reasoning whose markers the chat template writes or mentions.
ReasoningFormat ReasoningFormatOf(std::string_view chat_template);

// The opening and the closing marker of reasoning between markers; nullopt for other formats.
struct ReasoningMarkers {
  std::string_view begin;
  std::string_view end;
};
std::optional<ReasoningMarkers> MarkersOf(ReasoningFormat format);
// The markers around the content in formats that mark it as they mark reasoning.
std::vector<std::string_view> ContentMarkersOf(ReasoningFormat format);

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

// The parts of the markers of a format that may be tokens of a vocabulary. Those that are special
// tokens must stay in the text for the parser.
const std::vector<std::string_view>& TokensOf(ToolCallFormat format);
std::vector<std::string_view> TokensOf(ReasoningFormat format);
// Of all formats, each once.
std::vector<std::string_view> AllTokens();

}  // namespace baton
