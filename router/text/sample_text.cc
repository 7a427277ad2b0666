#include "router/text/sample_text.h"

#include <utility>

#include "common/base/hash.h"
#include "common/text/utf8.h"
#include "router/text/token_logprobs.h"

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
    if (options_.logprobs) delta.logprobs.push_back(LogprobsOf(tokenizer_, token, characters_));
    // A stop token does not belong to the text of the sample that it ends.
    if (output.finish != FinishReason::kStop) {
      AppendText(detokenizer_.Append(token.token), tokenizer_.is_special(token.token), delta);
    }
    reasoning_tokens_ += chat_.has_value() && chat_->in_reasoning() ? 1 : 0;
  }
  if (output.finish == FinishReason::kNone || stopped_) return;
  Flush(delta);
  ended_ = true;
  if (!stopped_) delta.finish = output.finish;
}

void SampleText::AppendText(const std::string& text, bool special, GenerationDelta& delta) {
  if (options_.logprobs) characters_ += static_cast<int64_t>(CountCodePoints(text));
  if (chat_.has_value()) {
    AddEvents(special ? chat_->AppendSpecial(text) : chat_->Append(text), delta);
  } else {
    delta.text += MatchStops(text, delta);
  }
}

void SampleText::AddEvents(std::vector<ChatEvent> events, GenerationDelta& delta) {
  for (ChatEvent& event : events) {
    if (stopped_) return;
    AddEvent(std::move(event), delta);
  }
}

void SampleText::AddEvent(ChatEvent event, GenerationDelta& delta) {
  if (event.kind == ChatEvent::Kind::kContent) {
    return AddContent(MatchStops(event.text, delta), delta);
  }
  // A stop string does not go on behind a call.
  AddContent(matcher_.Flush(), delta);
  if (event.kind == ChatEvent::Kind::kCallBegin) SetCallId(event.id);
  const bool last = options_.one_call && event.kind == ChatEvent::Kind::kCallEnd;
  delta.events.push_back(std::move(event));
  if (last) Stop(delta);
}

void SampleText::AddContent(std::string text, GenerationDelta& delta) {
  if (text.empty()) return;
  delta.events.push_back({ChatEvent::Kind::kContent, std::move(text), {}});
}

std::string SampleText::MatchStops(const std::string& text, GenerationDelta& delta) {
  std::string shown = matcher_.Append(text, /*may_stop=*/token_count_ > options_.min_tokens);
  if (matcher_.stopped() && !stopped_) {
    delta.stop_index = matcher_.stop_index();
    Stop(delta);
  }
  return shown;
}

void SampleText::Stop(GenerationDelta& delta) {
  stopped_ = true;
  ended_ = true;
  delta.finish = FinishReason::kStop;
}

// Some models count their calls, and some begin again in a second section.
void SampleText::SetCallId(std::string& id) {
  if (id.empty() || call_ids_.contains(id)) id = NewCallId();
  call_ids_.insert(id);
}

// Templates of Mistral take only ids of nine letters and digits.
std::string SampleText::NewCallId() const {
  if (options_.chat->calls != ToolCallFormat::kMistral) {
    return fmt::format("call_{:016x}", RandomId());
  }
  return fmt::format("{:09x}", RandomId() >> 28);
}

void SampleText::Flush(GenerationDelta& delta) {
  AppendText(detokenizer_.Flush(), /*special=*/false, delta);
  if (chat_.has_value() && !stopped_) AddEvents(chat_->Finish(), delta);
  if (stopped_) return;
  std::string rest = matcher_.Flush();
  if (chat_.has_value()) {
    AddContent(std::move(rest), delta);
  } else {
    delta.text += rest;
  }
}

}  // namespace baton::router
