#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_set>
#include <vector>

#include "common/chat_format/chat_parser.h"
#include "common/text/detokenizer.h"
#include "common/text/stop_matcher.h"
#include "common/text/tokenizer.h"
#include "router/generation.h"

namespace baton::router {

struct SampleTextOptions {
  bool skip_special = false;
  bool continues_text = false;  // the output continues the prompt's text without a break
  bool logprobs = false;
  int32_t min_tokens = 0;     // stop strings that end within the first min_tokens are ignored
  bool include_stop = false;  // the stop string that ended the sample is part of its text
  std::optional<ChatParserOptions> chat = std::nullopt;  // set: deltas have events instead of text
  std::span<const TokenId> chat_tokens = {};             // tokens that are markers for `chat`
  bool one_call = false;                                 // the sample ends with its first call
};

// Turns one sample's tokens into the text for its client: only whole characters, no part of a stop
// string (unless include_stop), and no text of the stop token that ended the sample. Of a chat,
// stop strings match the content: not reasoning, calls or markers. Owned by one generation; not
// thread-safe.
class SampleText final {
 public:
  SampleText(const Tokenizer& tokenizer,
             std::shared_ptr<const StopStrings> stops,
             const SampleTextOptions& options);

  // Adds the output's text, token and logprobs to `delta`; sets delta.finish at the sample's end.
  void Append(const OutputToken& output, GenerationDelta& delta);
  // Adds the text that was held back. For a sample that ends without a finish reason.
  void Flush(GenerationDelta& delta);

  bool ended() const { return ended_; }
  // Whether a stop string or a call ended the sample. The workers do not know about either.
  bool stopped() const { return stopped_; }
  int32_t token_count() const { return token_count_; }
  int32_t reasoning_token_count() const { return reasoning_tokens_; }

 private:
  // `special`: the text of a special token.
  void AppendText(const std::string& text, bool special, GenerationDelta& delta);
  void AddEvents(std::vector<ChatEvent> events, GenerationDelta& delta);
  void AddEvent(ChatEvent event, GenerationDelta& delta);
  void AddContent(std::string text, GenerationDelta& delta);
  // `text` without stop strings; ends the sample when it has one.
  std::string MatchStops(const std::string& text, GenerationDelta& delta);
  void Stop(GenerationDelta& delta);
  void SetCallId(std::string& id);
  std::string NewCallId() const;

  Tokenizer tokenizer_;  // copies share their data
  SampleTextOptions options_;
  Detokenizer detokenizer_;
  StopMatcher matcher_;
  std::optional<ChatParser> chat_;
  std::unordered_set<std::string> call_ids_;
  bool ended_ = false;
  bool stopped_ = false;
  int32_t token_count_ = 0;
  int32_t reasoning_tokens_ = 0;
  int64_t characters_ = 0;  // characters detokenised so far; counted only for logprobs
};

}  // namespace baton::router
