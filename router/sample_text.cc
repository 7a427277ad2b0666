#include "router/sample_text.h"

#include <utility>

#include "common/base/hash.h"
#include "common/text/utf8.h"

namespace baton::router {

SampleText::SampleText(const Tokenizer& tokenizer,
                       std::shared_ptr<const StopStrings> stops,
                       const SampleTextOptions& options)
    : tokenizer_(tokenizer),
      options_(options),
      detokenizer_(tokenizer,
                   {.skip_special = options.skip_special,
                    .shown_special = options.chat_tokens,
                    .continues_text = options.continues_text}),
      matcher_(std::move(stops), options.include_stop) {
  if (options.chat.has_value()) chat_.emplace(*options.chat);
}

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
    reasoning_tokens_ += chat_.has_value() && chat_->in_reasoning() ? 1 : 0;
  }
  if (output.finish == FinishReason::kNone || stopped_) return;
  Flush(delta);
  ended_ = true;
  if (!stopped_) delta.finish = output.finish;
}

void SampleText::AppendText(const std::string& text, GenerationDelta& delta) {
  AddText(matcher_.Append(text, /*may_stop=*/token_count_ > options_.min_tokens), delta);
  if (!matcher_.stopped() || stopped_) return;
  EndChat(delta);
  delta.stop_index = matcher_.stop_index();
  stopped_ = true;
  ended_ = true;
  delta.finish = FinishReason::kStop;
}

void SampleText::AddText(const std::string& text, GenerationDelta& delta) {
  if (chat_.has_value()) {
    AddEvents(chat_->Append(text), delta);
  } else {
    delta.text += text;
  }
}

void SampleText::AddEvents(std::vector<ChatEvent> events, GenerationDelta& delta) {
  for (ChatEvent& event : events) {
    if (stopped_) return;
    if (event.kind == ChatEvent::Kind::kCallBegin && event.id.empty()) event.id = NewCallId();
    const bool last = options_.one_call && event.kind == ChatEvent::Kind::kCallEnd;
    delta.events.push_back(std::move(event));
    if (!last) continue;
    stopped_ = true;
    ended_ = true;
    delta.finish = FinishReason::kStop;
  }
}

void SampleText::EndChat(GenerationDelta& delta) {
  if (chat_.has_value()) AddEvents(chat_->Finish(), delta);
}

// Templates of Mistral take only ids of nine letters and digits.
std::string SampleText::NewCallId() const {
  if (options_.chat->calls != ToolCallFormat::kMistral) {
    return fmt::format("call_{:016x}", RandomId());
  }
  return fmt::format("{:09x}", RandomId() >> 28);
}

void SampleText::Flush(GenerationDelta& delta) {
  AppendText(detokenizer_.Flush(), delta);
  if (stopped_) return;
  AddText(matcher_.Flush(), delta);
  EndChat(delta);
}

TextLogprob SampleText::Describe(TokenId token, float logprob) const {
  TextLogprob out{token, logprob, {}};
  if (tokenizer_.Contains(token)) out.piece = std::string(tokenizer_.piece(token));
  return out;
}

}  // namespace baton::router
