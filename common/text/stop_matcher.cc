#include "common/text/stop_matcher.h"

#include <deque>
#include <utility>

#include "common/text/utf8.h"

namespace baton {

StatusOr<StopStrings> StopStrings::Create(std::span<const std::string> strings) {
  StopStrings result;
  size_t bytes = 0;
  for (size_t i = 0; i < strings.size(); ++i) {
    const std::string& text = strings[i];
    bytes += text.size();
    if (text.empty()) return InvalidArgument("stop[{}] is empty; it must have text", i);
    if (!IsValidUtf8(text)) return InvalidArgument("stop[{}] is not valid UTF-8", i);
    if (bytes > kMaxBytes) {
      return InvalidArgument("the stop strings together have more than {} bytes", kMaxBytes);
    }
    uint64_t node = 0;
    for (const char c : text) {
      const auto next = static_cast<uint32_t>(result.nodes_.size());
      const auto [edge, added] =
          result.edges_.try_emplace(node << 8 | static_cast<uint8_t>(c), next);
      if (added) {
        const uint32_t depth = result.nodes_[node].depth + 1;
        result.nodes_.push_back({.failure = 0, .depth = depth, .matched = 0, .string = -1});
      }
      node = edge->second;
    }
    if (result.nodes_[node].string >= 0) continue;
    result.nodes_[node].matched = static_cast<uint32_t>(text.size());
    result.nodes_[node].string = static_cast<int32_t>(i);
  }

  // Sets the failure links in breadth-first order: a node's link needs those of shallower nodes.
  std::vector<std::vector<std::pair<uint8_t, uint32_t>>> children(result.nodes_.size());
  for (const auto& [key, node] : result.edges_) {
    children[key >> 8].emplace_back(static_cast<uint8_t>(key & 0xFF), node);
  }
  std::deque<uint32_t> waiting = {0};
  while (!waiting.empty()) {
    const uint32_t parent = waiting.front();
    waiting.pop_front();
    for (const auto& [byte, node] : children[parent]) {
      waiting.push_back(node);
      if (parent == 0) continue;
      const uint32_t failure = result.Next(result.nodes_[parent].failure, byte);
      result.nodes_[node].failure = failure;
      if (result.nodes_[node].string < 0) {
        result.nodes_[node].matched = result.nodes_[failure].matched;
        result.nodes_[node].string = result.nodes_[failure].string;
      }
    }
  }
  return result;
}

uint32_t StopStrings::Next(uint32_t node, uint8_t byte) const {
  while (true) {
    const auto edge = edges_.find(static_cast<uint64_t>(node) << 8 | byte);
    if (edge != edges_.end()) return edge->second;
    if (node == 0) return 0;
    node = nodes_[node].failure;
  }
}

std::string StopMatcher::Append(std::string_view text, bool may_stop) {
  if (stopped()) return "";
  if (strings_->empty()) return std::string(text);
  for (const char c : text) {
    held_back_.push_back(c);
    node_ = strings_->Next(node_, static_cast<uint8_t>(c));
    const StopStrings::Node& node = strings_->nodes_[node_];
    if (node.string < 0 || !may_stop) continue;
    stop_index_ = node.string;
    if (!include_stop_) held_back_.erase(held_back_.size() - node.matched);
    return std::exchange(held_back_, {});
  }
  const size_t shown = held_back_.size() - strings_->nodes_[node_].depth;
  std::string out = held_back_.substr(0, shown);
  held_back_.erase(0, shown);
  return out;
}

std::string StopMatcher::Flush() {
  node_ = 0;
  return stopped() ? "" : std::exchange(held_back_, {});
}

}  // namespace baton
