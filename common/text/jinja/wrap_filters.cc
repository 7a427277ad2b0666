#include <algorithm>
#include <optional>
#include <string>

#include "common/text/jinja/arguments.h"
#include "common/text/jinja/filters.h"
#include "common/text/jinja/interpreter.h"
#include "common/text/jinja/text_ops.h"
#include "common/text/jinja/value_text.h"
#include "common/text/split_regex.h"
#include "common/text/utf8.h"

// Filters that fit text into a length: truncate and wordwrap.

namespace baton::jinja {
namespace {

// Places where textwrap may cut a line: around white space, after hyphens in words, around dashes.
const SplitRegex& WordPattern() {
  static const auto* regex = new SplitRegex(*SplitRegex::Compile(
      R"re([\t\n\x0b\x0c\r ]+|(?<=[\w!"'&.,?])-{2,}(?=\w)|[^\t\n\x0b\x0c\r ]+?)re"
      R"re((?:-(?:(?<=[^\d\W]{2}-)|(?<=[^\d\W]-[\w!"'&.,?]-))(?=[^\d\W]-?[^\d\W])|)re"
      R"re((?=[\t\n\x0b\x0c\r ]|\z)|(?<=[\w!"'&.,?])(?=-{2,}\w)))re"));
  return *regex;
}
const SplitRegex& SpacePattern() {
  static const auto* regex = new SplitRegex(*SplitRegex::Compile(R"re([\t\n\x0b\x0c\r ]+)re"));
  return *regex;
}

struct WrapStyle {
  size_t width = 79;
  bool break_long_words = true;
  bool break_on_hyphens = true;
};

// Python's textwrap.wrap for one line.
class LineWrapper final {
 public:
  LineWrapper(std::string_view line, const WrapStyle& style) : line_(line), style_(style) {
    std::vector<size_t> ends;
    (style.break_on_hyphens ? WordPattern() : SpacePattern()).Split(line, 0, line.size(), ends);
    size_t begin = 0;
    for (const size_t end : ends) {
      chunks_.push_back({{begin, end}, CountCodePoints(line.substr(begin, end - begin))});
      begin = end;
    }
  }

  std::vector<TextSpan> Run() {
    std::vector<TextSpan> lines;
    while (next_ < chunks_.size()) {
      if (!lines.empty() && IsSpace(chunks_[next_].span)) {
        ++next_;
        if (next_ == chunks_.size()) break;
      }
      const TextSpan line = NextLine();
      if (line.end > line.begin) lines.push_back(line);
    }
    return lines;
  }

 private:
  // The length is stored, because a long word may be cut many times.
  struct Chunk {
    TextSpan span;
    size_t length;  // characters
  };

  bool IsSpace(TextSpan span) const {
    const auto text = line_.substr(span.begin, span.end - span.begin);
    return StripSpaces(text, true, false).first == text.size();
  }

  TextSpan NextLine() {
    TextSpan line{chunks_[next_].span.begin, chunks_[next_].span.begin};
    size_t length = 0;
    std::optional<TextSpan> last;
    while (next_ < chunks_.size() && length + chunks_[next_].length <= style_.width) {
      length += chunks_[next_].length;
      last = chunks_[next_++].span;
      line.end = last->end;
    }
    if (next_ < chunks_.size() && chunks_[next_].length > style_.width) {
      if (style_.break_long_words) {
        last = CutChunk(style_.width - length);
      } else if (!last) {
        last = chunks_[next_++].span;
      }
      line.end = last->end;
    }
    if (last && IsSpace(*last)) line.end = last->begin;
    return line;
  }

  // Cuts the first `room` characters off the next chunk, or less if they have a hyphen to cut at.
  TextSpan CutChunk(size_t room) {
    TextSpan& chunk = chunks_[next_].span;
    size_t end = chunk.begin;
    for (size_t i = 0; i < room; ++i) end += DecodeUtf8(line_, end).length;
    if (style_.break_on_hyphens) {
      const std::string_view fits = line_.substr(chunk.begin, end - chunk.begin);
      const size_t hyphen = fits.rfind('-');
      const bool useful = hyphen != std::string_view::npos && hyphen > 0 &&
                          fits.substr(0, hyphen).find_first_not_of('-') != std::string_view::npos;
      if (useful) end = chunk.begin + hyphen + 1;
    }
    const TextSpan taken{chunk.begin, end};
    chunk.begin = end;
    chunks_[next_].length -= CountCodePoints(line_.substr(taken.begin, end - taken.begin));
    return taken;
  }

  const std::string_view line_;
  const WrapStyle& style_;
  std::vector<Chunk> chunks_;
  size_t next_ = 0;
};

}  // namespace

StatusOr<Value> WordWrap(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  BATON_ASSIGN_OR_RETURN(
      const auto bound,
      BoundArguments::Bind(
          "wordwrap", arguments, {"width", "break_long_words", "wrapstring", "break_on_hyphens"}));
  BATON_ASSIGN_OR_RETURN(const int64_t width, bound.Int(0, 79));
  if (width < 1) return InvalidArgument("wordwrap to a width of {}; it must be at least 1", width);
  BATON_ASSIGN_OR_RETURN(const std::string between, bound.Text(2, "\n"));
  const WrapStyle style{.width = static_cast<size_t>(width),
                        .break_long_words = bound.Bool(1, true),
                        .break_on_hyphens = bound.Bool(3, true)};
  Budget& budget = interpreter.budget();
  BATON_ASSIGN_OR_RETURN(const MarkedText text, ToText(input, budget));
  BATON_RETURN_IF_ERROR(budget.Spend(text.size()));
  BATON_RETURN_IF_ERROR(budget.CheckRoom(text.size() * 2 * sizeof(TextSpan)));
  BATON_ASSIGN_OR_RETURN(const auto lines, SplitLines(text.text(), false, budget));
  MarkedText out;
  bool first_line = true;
  for (const TextSpan& line : lines) {
    const auto all = std::string_view(text.text()).substr(line.begin, line.end - line.begin);
    // An empty line stays an empty line.
    if (!std::exchange(first_line, false)) out.Append(between, true);
    bool first = true;
    for (const TextSpan& part : LineWrapper(all, style).Run()) {
      if (!std::exchange(first, false)) out.Append(between, true);
      out.AppendRange(text, line.begin + part.begin, line.begin + part.end);
      BATON_RETURN_IF_ERROR(budget.SpendOnBytes(between.size()));
      BATON_RETURN_IF_ERROR(budget.CheckRoom(out.memory()));
    }
  }
  return interpreter.NewString(std::move(out));
}

StatusOr<Value> Truncate(Interpreter& interpreter, const Value& input, const Arguments& arguments) {
  BATON_ASSIGN_OR_RETURN(
      const auto bound,
      BoundArguments::Bind("truncate", arguments, {"length", "killwords", "end", "leeway"}));
  BATON_ASSIGN_OR_RETURN(const int64_t length, bound.Int(0, 255));
  BATON_ASSIGN_OR_RETURN(const std::string end, bound.Text(2, "..."));
  BATON_ASSIGN_OR_RETURN(const int64_t leeway, bound.Int(3, 5));
  const auto end_length = static_cast<int64_t>(CountCodePoints(end));
  if (length < end_length || leeway < 0) {
    return InvalidArgument(
        "truncate to {} characters with a leeway of {}; at least {} and 0 are needed",
        length,
        leeway,
        end_length);
  }
  Budget& budget = interpreter.budget();
  BATON_ASSIGN_OR_RETURN(const MarkedText text, ToText(input, budget));
  BATON_RETURN_IF_ERROR(budget.Spend(text.size() / 32));
  const auto size = static_cast<int64_t>(CountCodePoints(text.text()));
  if (size - leeway <= length) return interpreter.NewString(text);
  const SliceRange range = SliceOf(std::nullopt, length - end_length, 1, size);
  BATON_ASSIGN_OR_RETURN(MarkedText cut, SliceText(text, size, range, budget));
  const size_t space = bound.Bool(1, false) ? std::string::npos : cut.text().rfind(' ');
  if (space != std::string::npos) cut = cut.Slice(0, space);
  cut.Append(end, !bound.Has(2) || IsTrusted(bound[2]));
  return interpreter.NewString(std::move(cut));
}

}  // namespace baton::jinja
