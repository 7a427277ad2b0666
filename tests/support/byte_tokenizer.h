#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/text/tokenizer.h"

namespace baton {

// A tokenizer with a token for each byte, the `texts`, the special tokens `special`, and the end
// token </s>, which is the last.
inline Tokenizer BytesAnd(const std::vector<std::string>& texts,
                          const std::vector<std::string_view>& special = {}) {
  TokenizerSpec spec;
  const auto add = [&](std::string bytes, PieceKind kind) {
    Piece piece;
    piece.bytes = std::move(bytes);
    piece.kind = kind;
    spec.pieces.push_back(std::move(piece));
  };
  for (int byte = 0; byte < 256; ++byte) {
    add(std::string(1, static_cast<char>(byte)), PieceKind::kNormal);
  }
  for (const std::string& text : texts) add(text, PieceKind::kNormal);
  for (const std::string_view text : special) add(std::string(text), PieceKind::kControl);
  add("<pad>", PieceKind::kControl);
  add("</s>", PieceKind::kControl);
  spec.eos = {static_cast<TokenId>(spec.pieces.size() - 1)};
  return *Tokenizer::Create(std::move(spec));
}

}  // namespace baton
