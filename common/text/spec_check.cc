#include "common/text/spec_check.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <string_view>

namespace baton {
namespace {

constexpr size_t kLargestVocabulary = size_t{1} << 24;

Status CheckId(std::string_view what, TokenId id, size_t vocabulary) {
  if (id >= 0 && static_cast<size_t>(id) < vocabulary) return OkStatus();
  return InvalidArgument(
      "{} is token {}; the vocabulary has the tokens 0 to {}", what, id, vocabulary - 1);
}

Status CheckIds(std::string_view what, std::span<const TokenId> ids, size_t vocabulary) {
  for (const TokenId id : ids) BATON_RETURN_IF_ERROR(CheckId(what, id, vocabulary));
  return OkStatus();
}

bool IsFinite(double score) {
  return std::isfinite(score);
}

}  // namespace

Status CheckTokenizerSpec(const TokenizerSpec& spec) {
  const size_t count = spec.pieces.size();
  if (count == 0 || count > kLargestVocabulary) {
    return InvalidArgument("the tokenizer's vocabulary has {} pieces; it must have 1 to {}",
                           count,
                           kLargestVocabulary);
  }
  const bool unigram = spec.model == TokenModel::kUnigram;
  if (unigram && (spec.scores.size() != count || !std::ranges::all_of(spec.scores, IsFinite))) {
    return InvalidArgument(
        "the tokenizer has {} scores for {} pieces; each piece needs one, a number that is finite",
        spec.scores.size(),
        count);
  }
  for (const Merge& merge : spec.merges) {
    const TokenId ids[] = {merge.left, merge.right, merge.result};
    BATON_RETURN_IF_ERROR(CheckIds("a part of a merge", ids, count));
    if (merge.rank == std::numeric_limits<uint32_t>::max()) {
      return InvalidArgument("a merge has rank {}; ranks must be less than that", merge.rank);
    }
  }
  for (const AddedToken& token : spec.added) {
    BATON_RETURN_IF_ERROR(CheckId("an added token", token.id, count));
  }
  BATON_RETURN_IF_ERROR(CheckIds("a token put before the text", spec.prefix, count));
  BATON_RETURN_IF_ERROR(CheckIds("a token put after the text", spec.suffix, count));
  BATON_RETURN_IF_ERROR(CheckIds("an end-of-sequence token", spec.eos, count));
  if (spec.bos) BATON_RETURN_IF_ERROR(CheckId("the beginning-of-sequence token", *spec.bos, count));
  if (spec.unknown) BATON_RETURN_IF_ERROR(CheckId("the unknown token", *spec.unknown, count));
  if (spec.padding) BATON_RETURN_IF_ERROR(CheckId("the padding token", *spec.padding, count));
  return OkStatus();
}

}  // namespace baton
