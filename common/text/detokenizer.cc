#include "common/text/detokenizer.h"

#include <algorithm>

#include "common/text/metaspace.h"
#include "common/text/normalizer.h"
#include "common/text/utf8.h"

namespace baton {
namespace {

std::string ReplaceEachInvalidByte(std::string_view text) {
  std::string out;
  for (size_t pos = 0; pos < text.size();) {
    const CodePoint c = DecodeUtf8(text, pos);
    const std::string_view bytes = text.substr(pos, c.length);
    pos += c.length;
    if (IsValidUtf8(bytes)) {
      out.append(bytes);
      continue;
    }
    for (size_t i = 0; i < bytes.size(); ++i) AppendUtf8(out, kReplacementCharacter);
  }
  return out;
}

}  // namespace

std::string Detokenizer::Append(TokenId token) {
  if (!tokenizer_.Contains(token)) return "";
  if (options_.skip_special && tokenizer_.is_special(token)) {
    const std::span<const TokenId> shown = options_.shown_special;
    if (std::find(shown.begin(), shown.end(), token) == shown.end()) return "";
  }
  AppendBytes(token);
  return TakeComplete(IncompleteTail(pending_));
}

std::string Detokenizer::Flush() {
  return TakeComplete(0);
}

void Detokenizer::AppendBytes(TokenId token) {
  const TokenizerSpec& spec = tokenizer_.spec();
  std::string bytes(tokenizer_.decoded_piece(token));
  if (spec.alphabet == BpeAlphabet::kCharacters && tokenizer_.kind(token) != PieceKind::kByte) {
    bytes = ReplaceAll(bytes, kMetaspace, " ");
  }
  if (bytes.empty()) return;
  const bool drop = !started_ && spec.strip_first_space && !options_.continues_text;
  started_ = true;
  pending_.append(bytes, drop && bytes[0] == ' ' ? 1 : 0);
}

std::string Detokenizer::TakeComplete(size_t held_back) {
  const std::string complete = pending_.substr(0, pending_.size() - held_back);
  pending_.erase(0, complete.size());
  if (IsValidUtf8(complete)) return complete;
  return tokenizer_.spec().alphabet == BpeAlphabet::kCharacters ? ReplaceEachInvalidByte(complete)
                                                                : ReplaceInvalidUtf8(complete);
}

}  // namespace baton
