#include "router/api/openai_members.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/base/edit_distance.h"
#include "common/base/json.h"
#include "router/api/chat_members.h"
#include "router/request_error.h"

namespace baton::router {
namespace {

using Json = nlohmann::ordered_json;

enum class Use : uint8_t {
  kRead,
  kIgnored,      // does not change the answer
  kUnsupported,  // would change the answer: refused
};

enum class Where : uint8_t { kBoth, kChat, kCompletion };

struct Member {
  std::string_view name;
  Use use = Use::kRead;
  Where where = Where::kBoth;
  std::string_view harmless = {};  // JSON: the value of an unsupported member that changes nothing
  std::string_view instead = {};   // a hint for the error: what to use instead
};

// OpenAI's members, and vLLM's extensions that clients send, apart from SharedMembers().
constexpr Member kOwnMembers[] = {
    {"add_generation_prompt", Use::kRead, Where::kChat},
    {"add_special_tokens"},
    {"allowed_token_ids", Use::kUnsupported},
    {"audio", Use::kUnsupported, Where::kChat},
    {"bad_words", Use::kUnsupported},
    {"best_of"},
    {"chat_template", Use::kUnsupported, Where::kChat, {}, "the model's own template is used"},
    {"chat_template_kwargs", Use::kRead, Where::kChat},
    {"continue_final_message", Use::kRead, Where::kChat},
    {"documents", Use::kRead, Where::kChat},
    {"echo", Use::kRead, Where::kCompletion},
    {"echo", Use::kUnsupported, Where::kChat, "false"},
    {"function_call", Use::kUnsupported, Where::kChat, "\"none\"", "use tool_choice"},
    {"functions", Use::kUnsupported, Where::kChat, "[]", "use tools"},
    {"guided_choice"},
    {"guided_grammar"},
    {"guided_json"},
    {"guided_regex"},
    {"ignore_eos"},
    {"include_reasoning", Use::kRead, Where::kChat},
    {"include_stop_str_in_output"},
    {"logits_processors", Use::kUnsupported},
    {"logprobs"},
    {"max_completion_tokens"},
    {"max_tokens"},
    {"messages", Use::kRead, Where::kChat},
    {"metadata", Use::kIgnored},
    {"min_tokens"},
    {"modalities", Use::kUnsupported, Where::kChat, R"(["text"])"},
    {"model"},
    {"n"},
    {"parallel_tool_calls", Use::kRead, Where::kChat},
    {"prediction", Use::kIgnored, Where::kChat},  // only a hint to speed up the answer
    {"prompt", Use::kRead, Where::kCompletion},
    {"prompt_cache_key", Use::kIgnored},
    {"prompt_cache_retention", Use::kIgnored},
    {"prompt_logprobs"},
    {"reasoning_effort", Use::kRead, Where::kChat},
    {"request_id", Use::kIgnored},
    {"response_format"},
    {"return_token_ids", Use::kUnsupported, Where::kBoth, "false"},
    {"return_tokens_as_token_ids", Use::kUnsupported, Where::kBoth, "false"},
    {"safety_identifier", Use::kIgnored},
    {"service_tier", Use::kIgnored},
    {"skip_special_tokens"},
    {"spaces_between_special_tokens", Use::kIgnored},  // the tokenizer's own rules join tokens
    {"stop"},
    {"stop_token_ids"},
    {"store", Use::kIgnored},
    {"stream"},
    {"stream_options"},
    {"structured_outputs"},
    {"suffix", Use::kUnsupported, Where::kCompletion, "\"\""},
    {"tool_choice", Use::kRead, Where::kChat},
    {"tools", Use::kRead, Where::kChat},
    {"top_logprobs", Use::kRead, Where::kChat},
    {"truncate_prompt_tokens", Use::kUnsupported},
    {"use_beam_search", Use::kUnsupported, Where::kBoth, "false"},
    {"user", Use::kIgnored},
    {"verbosity", Use::kIgnored, Where::kChat},  // a hint that no model here was trained for
    {"web_search_options", Use::kUnsupported, Where::kChat},
};

constexpr Member kStreamOptions[] = {
    {"continuous_usage_stats"},
    {"include_obfuscation", Use::kIgnored},
    {"include_usage"},
};

// All members, by name.
std::span<const Member> AllMembers() {
  static const auto* const members = [] {
    auto* all = new std::vector<Member>(std::begin(kOwnMembers), std::end(kOwnMembers));
    for (const std::string_view name : SharedMembers()) all->push_back({name});
    std::ranges::stable_sort(*all, {}, &Member::name);
    return all;
  }();
  return *members;
}

bool IsOf(const Member& member, OpenAiKind kind) {
  if (member.where == Where::kBoth) return true;
  return (member.where == Where::kChat) == (kind == OpenAiKind::kChat);
}

// For example "; did you mean top_p?"; empty when no member has a name similar to `name`.
std::string Suggestion(OpenAiKind kind, std::span<const Member> members, std::string_view name) {
  constexpr size_t kLongestName = 64;
  constexpr size_t kMaxChanges = 2;
  if (name.size() > kLongestName) return "";
  const Member* nearest = nullptr;
  size_t fewest = kMaxChanges + 1;
  for (const Member& member : members) {
    if (member.use != Use::kRead || !IsOf(member, kind)) continue;
    const size_t changes = EditDistance(name, member.name);
    if (changes >= fewest || changes >= member.name.size()) continue;
    fewest = changes;
    nearest = &member;
  }
  return nearest == nullptr ? "" : fmt::format("; did you mean {}?", nearest->name);
}

Status CheckMember(OpenAiKind kind,
                   std::span<const Member> members,
                   const std::string& parent,
                   const std::string& name,
                   const Json& value) {
  if (value.is_null()) return OkStatus();
  const std::string path = parent + Shown(name);
  const auto known = std::find_if(members.begin(), members.end(), [&](const Member& member) {
    return member.name == name && IsOf(member, kind);
  });
  if (known == members.end()) {
    return WithReason(InvalidMember(path,
                                    "{} is not a member of a {} request{}",
                                    path,
                                    kind == OpenAiKind::kChat ? "chat" : "completion",
                                    Suggestion(kind, members, name)),
                      reason::kUnknownParameter);
  }
  if (known->use != Use::kUnsupported) return OkStatus();
  if (!known->harmless.empty()) {
    BATON_ASSIGN_OR_RETURN(const Json harmless, ParseOrderedJson(path, known->harmless));
    if (value == harmless) return OkStatus();
  }
  std::string message = fmt::format("{} is not supported", path);
  if (!known->harmless.empty()) message += fmt::format("; only {} is", known->harmless);
  if (!known->instead.empty()) message += fmt::format("; {}", known->instead);
  return WithReason(InvalidMember(path, "{}", message), reason::kUnsupportedParameter);
}

}  // namespace

Status CheckMembers(OpenAiKind kind, const Json& body) {
  for (const auto& [name, value] : body.items()) {
    BATON_RETURN_IF_ERROR(CheckMember(kind, AllMembers(), "", name, value));
  }
  const auto options = body.find("stream_options");
  if (options == body.end() || !options->is_object()) return OkStatus();
  for (const auto& [name, value] : options->items()) {
    BATON_RETURN_IF_ERROR(CheckMember(kind, kStreamOptions, "stream_options.", name, value));
  }
  return OkStatus();
}

}  // namespace baton::router
