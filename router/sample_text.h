#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/text/detokenizer.h"
#include "common/text/stop_matcher.h"
#include "common/text/tokenizer.h"
#include "router/generation.h"

namespace baton::router {

struct SampleTextOptions {
  bool skip_special = false;
  bool continues_text = false;  // the output goes on where the prompt's text stopped
  bool logprobs = false;
  int32_t min_tokens = 0;     // stop strings that end within so many tokens are passed over
  bool include_stop = false;  // a stop string is shown when it ends the sample
};

// Turns one sample's tokens into what its client sees: whole characters, no stop string or any part
// of one, and no text of the token that ended it. Owned by one generation; not thread-safe.
class SampleText final {
 public:
  SampleText(const Tokenizer& tokenizer,
             std::shared_ptr<const StopStrings> stops,
             const SampleTextOptions& options);

  // Adds the output's text, token and logprobs to `delta`; sets delta.finish at the sample's end.
  void Append(const OutputToken& output, GenerationDelta& delta);
  // Adds the text that is held back. For a sample that ends without a reason.
  void Flush(GenerationDelta& delta);

  bool ended() const { return ended_; }
  // Ended by a stop string: the workers do not know.
  bool stopped() const { return stopped_; }
  int32_t token_count() const { return token_count_; }

 private:
  void AppendText(const std::string& text, GenerationDelta& delta);
  TextLogprob Describe(TokenId token, float logprob) const;

  Tokenizer tokenizer_;  // copies share their data
  SampleTextOptions options_;
  Detokenizer detokenizer_;
  StopMatcher matcher_;
  bool ended_ = false;
  bool stopped_ = false;
  int32_t token_count_ = 0;
  int64_t characters_ = 0;  // detokenised so far; counted for logprobs alone
};

}  // namespace baton::router
