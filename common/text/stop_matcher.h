#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <absl/container/flat_hash_map.h>

#include "common/base/status.h"

namespace baton {

// A request's stop strings, prepared for matching (Aho and Corasick 1975). Immutable, so
// thread-safe.
class StopStrings final {
 public:
  static constexpr size_t kMaxBytes = size_t{1} << 20;  // of all strings together

  // InvalidArgument for an empty string, one that is not UTF-8, or more than kMaxBytes in all.
  static StatusOr<StopStrings> Create(std::span<const std::string> strings);

  bool empty() const { return nodes_.size() == 1; }

 private:
  friend class StopMatcher;

  // The text read so far ends with the first `depth` bytes of some stop string, and no more.
  struct Node {
    uint32_t failure = 0;  // the node of the longest proper suffix
    uint32_t depth = 0;
    uint32_t matched = 0;  // length of the longest stop string that ends here, or 0
    int32_t string = -1;   // its index
  };

  StopStrings() : nodes_(1) {}
  uint32_t Next(uint32_t node, uint8_t byte) const;

  std::vector<Node> nodes_;
  absl::flat_hash_map<uint64_t, uint32_t> edges_;  // node << 8 | byte -> node
};

// Looks for stop strings in one stream of text. Holds back text that may be the start of a stop
// string, so that none is ever shown in part. The string that ends first stops; of those that end
// together, the longest. Constant time a byte, however many strings. Not thread-safe.
class StopMatcher final {
 public:
  // `include_stop`: the stop string that was found is part of the text.
  StopMatcher(std::shared_ptr<const StopStrings> strings, bool include_stop)
      : strings_(std::move(strings)), include_stop_(include_stop) {}

  // The text that can be shown after `text` (whole characters) has come: whole characters. Nothing
  // more once stopped. A stop string that ends in `text` is passed over unless `may_stop`.
  std::string Append(std::string_view text, bool may_stop = true);
  // What is held back, when the stream ends without a stop string.
  std::string Flush();

  bool stopped() const { return stop_index_ >= 0; }
  // The index of the string that was found, or -1.
  int stop_index() const { return stop_index_; }

 private:
  std::shared_ptr<const StopStrings> strings_;
  bool include_stop_;
  uint32_t node_ = 0;
  int stop_index_ = -1;
  std::string held_back_;
};

}  // namespace baton
