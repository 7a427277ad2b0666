#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "common/base/clock.h"
#include "common/base/ids.h"
#include "common/base/status.h"
#include "common/chat_format/chat_event.h"
#include "common/cluster/request.h"
#include "common/cluster/sampling_fields.h"
#include "router/types.h"

// Requests and output of generations, independent of the protocol: the types between
// RequestFrontend and the APIs (gRPC, HTTP).
namespace baton::router {

struct ChatTurn {
  std::string role;
  std::string content;
  std::string extra_json;  // further members: a JSON object, or empty
};

struct ChatInput {
  std::vector<ChatTurn> turns;
  std::string tools_json;               // a JSON array, or empty
  std::string arguments_json;           // further template variables: a JSON object, or empty
  bool continue_final_message = false;  // the prompt ends inside the last turn, after its content
  std::string reasoning_effort = {};    // a variable of the template; empty: not set
  std::optional<bool> thinking = {};    // whether the model is to reason before it answers
};

// How the output of a chat is divided for its client (common/chat_format).
struct ChatOutput {
  enum class Choice : uint8_t { kAuto, kRequired, kNamed };
  bool calls = false;             // calls of the offered tools are separated from content
  bool one_call = false;          // the sample ends with its first call
  Choice choice = Choice::kAuto;  // kNamed: the one tool of allowed_tools is called once
  // The only tools that may be called, of those that the template shows; empty: all.
  std::set<std::string, std::less<>> allowed_tools = {};

  bool MayCall(std::string_view tool) const {
    return allowed_tools.empty() || allowed_tools.contains(tool);
  }
};

// What every sample must match, as a client states it.
struct GrammarInput {
  enum class Kind : uint8_t { kNone, kJsonObject, kJsonSchema, kRegex, kChoice, kEbnf };
  Kind kind = Kind::kNone;
  std::string text = {};  // the schema as JSON, the regular expression, or the EBNF grammar
  std::vector<std::string> choices = {};
  std::string member = "grammar";  // the API's name of the member, for errors
};

// A query and a document whose relevance a reranker judges (text/reranker.h).
struct RerankInput {
  std::string query;
  std::string document;
  std::string instruction;  // empty: the template's own
};

using PromptInput =
    std::variant<std::monostate, std::string, ChatInput, std::vector<TokenId>, RerankInput>;

// A missing value takes the default that generation.proto states.
struct SamplingInput : SamplingOverrides {
  std::optional<uint64_t> seed;
  std::vector<std::pair<TokenId, float>> logit_bias;
};

// The names that an API has for the fields, for its error messages.
struct FieldNames {
  std::string text = "text";
  std::string tokens = "tokens.ids";
  std::string_view messages = "chat.messages";
  bool one_message_a_turn = true;  // the turns of the chat have the numbers of the messages
  std::string_view template_arguments = "chat.template_arguments_json";
  std::string_view reasoning_effort = "reasoning_effort";
  std::string_view samples = "samples";
  std::string_view max_tokens = "max_tokens";
  std::string_view top_logprobs = "top_logprobs";
  std::string_view prompt_logprobs = "prompt_logprobs";
  std::string_view sampling = "sampling.";  // prefix of each field of SamplingInput
};

struct GenerationRequest : PassedOptions {
  FieldNames names;
  // Set for an operator's request: it runs on these workers, and no key and no limit counts it.
  std::optional<PinnedWorkers> pinned;
  std::string client;  // the client's address, for round-robin between clients (FairThreads)
  std::string model;
  PromptInput input;
  // Set: deltas have events instead of text. Needs a chat as input.
  std::optional<ChatOutput> chat_output;
  // Adds BOS and EOS to the prompt if the model's tokenizer does. Default: true for text; false for
  // a chat, whose template writes them. No effect on token input.
  std::optional<bool> add_special_tokens;
  SamplingInput sampling;
  GrammarInput output_grammar;
  std::optional<int32_t> max_tokens;
  std::optional<int32_t> default_max_tokens;  // used without max_tokens; bounded by the context
  int32_t min_tokens = 0;
  int32_t samples = 0;  // 0 means 1
  int32_t prompts = 1;  // of the client's request; each prompt becomes a GenerationRequest
  std::vector<std::string> stop;
  std::vector<TokenId> stop_token_ids;
  bool ignore_eos = false;
  std::optional<int32_t> top_logprobs;
  std::optional<int32_t> prompt_logprobs;  // RequestOptions::prompt_logprobs
  Pooling pooling = Pooling::kNone;        // RequestOptions::pooling
  std::vector<TokenId> labels;             // RequestOptions::labels
  Duration timeout{};                      // zero: the default
  bool skip_special_tokens = false;
  bool include_stop_string = false;  // the text includes the stop string that ended the sample
};

struct TextLogprob {
  TokenId token = 0;
  float logprob = 0;
  std::string piece;  // the token's raw bytes
};

struct TokenLogprobs {
  int64_t text_offset = 0;  // where the token's text begins in the sample's text, in characters
  TextLogprob chosen;
  std::vector<TextLogprob> top;
  size_t events = 0;  // of GenerationDelta::events: how many had arrived with this token
  bool known = true;  // false: the first token of a prompt, which has no logprob
};

// A part of one sample's output.
struct GenerationDelta {
  int32_t sample = 0;
  std::string text;               // complete UTF-8
  std::vector<ChatEvent> events;  // see GenerationRequest::chat_output; each call has an id
  int32_t prompt_tokens = 0;
  int32_t cached_tokens = 0;  // of the prompt
  std::vector<TokenId> tokens;
  std::vector<TokenLogprobs> logprobs;
  // Once for a request with prompt_logprobs, before its first token: all tokens of the prompt. The
  // first one has no logprob.
  std::vector<TokenLogprobs> prompt_logprobs = {};
  std::vector<float> pooled = {};  // of a request that pools: its result
  FinishReason finish = FinishReason::kNone;
  int32_t stop_index = -1;            // of the stop string that ended the sample, or -1
  std::optional<TokenId> stop_token;  // of GenerationRequest::stop_token_ids, that ended the sample
  // The observer is called again at once, so that it may send both parts together.
  bool more_follows = false;
};

// The end of a generation.
struct GenerationEnd {
  Status status;
  bool retryable = false;
  int32_t prompt_tokens = 0;
  int32_t generated_tokens = 0;
  int32_t reasoning_tokens = 0;  // of the generated tokens; only with chat_output
  RequestAccount account;
};

// Called on any thread, one call at a time, in order. A sample's delta with a finish reason is the
// last delta of that sample. OnEnd is called exactly once, last.
class GenerationObserver {
 public:
  virtual ~GenerationObserver() = default;
  virtual void OnDelta(GenerationDelta delta) = 0;
  virtual void OnEnd(GenerationEnd end) = 0;
};

}  // namespace baton::router
