#pragma once

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "common/base/token_id.h"

namespace baton {

// An immutable list of tokens. Copies share one array, because a router dispatches a prompt of up
// to millions of tokens to several workers.
class TokenList final {
 public:
  TokenList() = default;
  TokenList(std::vector<TokenId> tokens)  // NOLINT(google-explicit-constructor): a plain conversion
      : tokens_(std::make_shared<const std::vector<TokenId>>(std::move(tokens))) {}
  TokenList(std::initializer_list<TokenId> tokens) : TokenList(std::vector<TokenId>(tokens)) {}

  std::span<const TokenId> view() const {
    return tokens_ == nullptr ? std::span<const TokenId>() : std::span<const TokenId>(*tokens_);
  }
  // NOLINTNEXTLINE(google-explicit-constructor): a view of the same tokens
  operator std::span<const TokenId>() const { return view(); }
  size_t size() const { return view().size(); }
  bool empty() const { return view().empty(); }
  const TokenId* data() const { return view().data(); }
  auto begin() const { return view().begin(); }
  auto end() const { return view().end(); }

  std::vector<TokenId> ToVector() const { return {begin(), end()}; }
  // These tokens followed by `more`. Shares the array when `more` is empty.
  TokenList Plus(std::span<const TokenId> more) const {
    if (more.empty()) return *this;
    std::vector<TokenId> tokens;
    tokens.reserve(size() + more.size());
    tokens.insert(tokens.end(), begin(), end());
    tokens.insert(tokens.end(), more.begin(), more.end());
    return tokens;
  }

  friend bool operator==(const TokenList& a, const TokenList& b) {
    return a.tokens_ == b.tokens_ || std::ranges::equal(a.view(), b.view());
  }

 private:
  std::shared_ptr<const std::vector<TokenId>> tokens_;  // null: no tokens
};

}  // namespace baton
