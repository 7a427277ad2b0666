#define PCRE2_CODE_UNIT_WIDTH 8
#include "common/text/split_regex.h"

#include <pcre2.h>

#include "common/text/oniguruma_syntax.h"

namespace baton {
namespace {

constexpr uint32_t kMatchLimit = 10'000'000;
constexpr uint32_t kHeapLimitKib = 64 * 1024;
constexpr size_t kLongestPattern = size_t{16} * 1024;

struct ContextDeleter {
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};

}  // namespace

struct SplitRegex::Code {
  explicit Code(pcre2_code* compiled)
      : code(compiled), context(pcre2_match_context_create(nullptr)) {
    pcre2_set_match_limit(context.get(), kMatchLimit);
    pcre2_set_heap_limit(context.get(), kHeapLimitKib);
  }
  ~Code() { pcre2_code_free(code); }
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;

  pcre2_code* code;
  std::unique_ptr<pcre2_match_context, ContextDeleter> context;
};

StatusOr<SplitRegex> SplitRegex::Compile(std::string_view pattern) {
  if (pattern.size() > kLongestPattern) {
    return InvalidArgument(
        "split pattern has {} bytes; at most {} are accepted", pattern.size(), kLongestPattern);
  }
  BATON_ASSIGN_OR_RETURN(const std::string translated, Pcre2Of(pattern));
  int error = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()),
                                   translated.size(),
                                   PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C,
                                   &error,
                                   &offset,
                                   nullptr);
  if (code == nullptr) {
    char reason[256] = {};
    pcre2_get_error_message(error, reinterpret_cast<PCRE2_UCHAR*>(reason), sizeof(reason));
    return InvalidArgument("split pattern '{}': {} at byte {}", translated, reason, offset);
  }
  pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);  // if this fails, PCRE2 uses its interpreter
  SplitRegex result;
  result.code_ = std::make_shared<const Code>(code);
  return result;
}

void SplitRegex::Split(std::string_view text,
                       size_t begin,
                       size_t end,
                       std::vector<size_t>& ends) const {
  const std::unique_ptr<pcre2_match_data, ContextDeleter> data(
      pcre2_match_data_create_from_pattern(code_->code, nullptr));
  const auto subject = text.substr(begin, end - begin);
  size_t done = 0;
  size_t from = 0;
  while (from < subject.size()) {
    // The text is valid UTF-8 by contract; checking it at each match would take quadratic time.
    const int rc = pcre2_match(code_->code,
                               reinterpret_cast<PCRE2_SPTR>(subject.data()),
                               subject.size(),
                               from,
                               PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY,
                               data.get(),
                               code_->context.get());
    if (rc < 0) break;
    const PCRE2_SIZE* match = pcre2_get_ovector_pointer(data.get());
    if (match[1] <= match[0] || match[0] < done) break;  // \K can move the start
    if (match[0] > done) ends.push_back(begin + match[0]);
    ends.push_back(begin + match[1]);
    done = from = match[1];
  }
  if (done < subject.size()) ends.push_back(end);
}

}  // namespace baton
