#include "common/text/pre_tokenizer.h"

#include "common/text/metaspace.h"
#include "common/text/utf8.h"

namespace baton {
namespace {

void SplitDigits(std::string_view text,
                 size_t begin,
                 size_t end,
                 bool runs,
                 const UnicodeClasses& classes,
                 std::vector<size_t>& ends) {
  bool in_number = false;
  for (size_t pos = begin; pos < end;) {
    const CodePoint c = DecodeUtf8(text, pos);
    const bool number = classes.Of(c.value) & kNumber;
    const bool boundary = number != in_number || (number && !runs);
    if (boundary && pos > begin) ends.push_back(pos);
    in_number = number;
    pos += c.length;
  }
  ends.push_back(end);
}

void SplitBeforeMetaspace(std::string_view text,
                          size_t begin,
                          size_t end,
                          std::vector<size_t>& ends) {
  const std::string_view stretch = text.substr(0, end);
  size_t pos = stretch.find(kMetaspace, begin);
  for (; pos != std::string_view::npos; pos = stretch.find(kMetaspace, pos + kMetaspace.size())) {
    if (pos > begin) ends.push_back(pos);
  }
  ends.push_back(end);
}

}  // namespace

StatusOr<PreTokenizer> PreTokenizer::Create(const std::vector<SplitStep>& steps) {
  PreTokenizer result;
  for (const SplitStep& step : steps) {
    switch (step.kind) {
      case SplitStep::Kind::kPattern:
        result.steps_.emplace_back(PieceScanner(step.pattern));
        break;
      case SplitStep::Kind::kRegex: {
        BATON_ASSIGN_OR_RETURN(auto regex, SplitRegex::Compile(step.regex));
        result.steps_.emplace_back(std::move(regex));
        break;
      }
      case SplitStep::Kind::kDigits:
      case SplitStep::Kind::kDigitRuns:
        result.steps_.emplace_back(Digits{step.kind == SplitStep::Kind::kDigitRuns, {}});
        break;
      case SplitStep::Kind::kBeforeMetaspace:
        result.steps_.emplace_back(BeforeMetaspace{});
        break;
    }
  }
  return result;
}

std::vector<size_t> PreTokenizer::Split(std::string_view text) const {
  std::vector<size_t> ends;
  if (text.empty()) return ends;
  if (steps_.empty()) return {text.size()};
  ends.reserve(text.size() / 4 + 1);
  Apply(steps_[0], text, 0, text.size(), ends);
  for (size_t i = 1; i < steps_.size(); ++i) {
    std::vector<size_t> finer;
    finer.reserve(ends.size());
    size_t begin = 0;
    for (const size_t end : ends) {
      Apply(steps_[i], text, begin, end, finer);
      begin = end;
    }
    ends = std::move(finer);
  }
  return ends;
}

void PreTokenizer::Apply(
    const Step& step, std::string_view text, size_t begin, size_t end, std::vector<size_t>& ends) {
  if (const auto* scanner = std::get_if<PieceScanner>(&step)) {
    scanner->Split(text, begin, end, ends);
  } else if (const auto* regex = std::get_if<SplitRegex>(&step)) {
    regex->Split(text, begin, end, ends);
  } else if (const auto* digits = std::get_if<Digits>(&step)) {
    SplitDigits(text, begin, end, digits->runs, digits->classes, ends);
  } else {
    SplitBeforeMetaspace(text, begin, end, ends);
  }
}

}  // namespace baton
