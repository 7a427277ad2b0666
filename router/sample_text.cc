#include "router/sample_text.h"

#include <utility>

#include "common/text/utf8.h"

namespace baton::router {

SampleText::SampleText(const Tokenizer& tokenizer,
                       std::shared_ptr<const StopStrings> stops,
                       const SampleTextOptions& options)
    : tokenizer_(tokenizer),
      options_(options),
      detokenizer_(
          tokenizer,
          {.skip_special = options.skip_special, .continues_text = options.continues_text}),
      matcher_(std::move(stops), options.include_stop) {}

void SampleText::Append(const OutputToken& output, GenerationDelta& delta) {
  if (output.token.has_value()) {
    const SampledToken& token = *output.token;
    ++token_count_;
    delta.tokens.push_back(token.token);
    if (options_.logprobs) {
      TokenLogprobs& logprobs = delta.logprobs.emplace_back();
      logprobs.text_offset = characters_;
      logprobs.chosen = Describe(token.token, token.logprob);
      for (const TokenLogprob& top : token.top) {
        logprobs.top.push_back(Describe(top.token, top.logprob));
      }
    }
    // A stop token does not belong to the text of the sample that it ends.
    if (output.finish != FinishReason::kStop) {
      const std::string text = detokenizer_.Append(token.token);
      if (options_.logprobs) characters_ += static_cast<int64_t>(CountCodePoints(text));
      AppendText(text, delta);
    }
  }
  if (output.finish == FinishReason::kNone || stopped_) return;
  Flush(delta);
  ended_ = true;
  if (!stopped_) delta.finish = output.finish;
}

void SampleText::AppendText(const std::string& text, GenerationDelta& delta) {
  delta.text += matcher_.Append(text, /*may_stop=*/token_count_ > options_.min_tokens);
  if (!matcher_.stopped()) return;
  stopped_ = true;
  ended_ = true;
  delta.finish = FinishReason::kStop;
}

void SampleText::Flush(GenerationDelta& delta) {
  AppendText(detokenizer_.Flush(), delta);
  if (!stopped_) delta.text += matcher_.Flush();
}

TextLogprob SampleText::Describe(TokenId token, float logprob) const {
  TextLogprob out{token, logprob, {}};
  if (tokenizer_.Contains(token)) out.piece = std::string(tokenizer_.piece(token));
  return out;
}

}  // namespace baton::router
