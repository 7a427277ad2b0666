#include "common/chat_format/markers.h"

#include <algorithm>
#include <utility>

namespace baton {

SpecialMarkers::SpecialMarkers(std::vector<std::string_view> tokens) : tokens_(std::move(tokens)) {
  std::ranges::sort(tokens_);
  tokens_.erase(std::unique(tokens_.begin(), tokens_.end()), tokens_.end());
}

std::string SpecialMarkers::Signed(std::string_view marker, std::string_view sign) const {
  std::string out(marker);
  for (const std::string_view token : tokens_) {
    const size_t at = out.find(token);
    if (at != std::string::npos) out.insert(at, sign);
  }
  return out;
}

std::string WithoutSigns(std::string_view text) {
  std::string out(text);
  std::erase(out, kSpecialSign);
  return out;
}

Markers::Markers(std::vector<std::string> markers) : markers_(std::move(markers)) {
  for (const std::string& marker : markers_) {
    if (first_.find(marker.front()) == std::string::npos) first_ += marker.front();
  }
}

Markers::Found Markers::Find(std::string_view text, bool last) const {
  if (markers_.empty()) return {text.size(), -1};
  const auto next = [&](size_t from) {
    const size_t at =
        first_.size() == 1 ? text.find(first_[0], from) : text.find_first_of(first_, from);
    return at == std::string_view::npos ? text.size() : at;
  };
  for (size_t at = next(0); at < text.size(); at = next(at + 1)) {
    const std::string_view rest = text.substr(at);
    int longest = -1;
    for (size_t i = 0; i < markers_.size(); ++i) {
      const std::string_view marker = markers_[i];
      if (!last && rest.size() < marker.size() && marker.starts_with(rest)) return {at, -1};
      const bool longer = longest < 0 || marker.size() > (*this)[longest].size();
      if (longer && rest.starts_with(marker)) longest = static_cast<int>(i);
    }
    if (longest >= 0) return {at, longest};
  }
  return {text.size(), -1};
}

std::string MarkerRemover::Append(std::string_view text) {
  std::string joined = std::exchange(held_, {});
  if (!joined.empty()) text = joined += text;
  std::string kept;
  while (true) {
    const Markers::Found found = markers_.Find(text);
    kept += text.substr(0, found.at);
    text.remove_prefix(found.at);
    if (found.marker < 0) break;
    text.remove_prefix(markers_[found.marker].size());
  }
  held_ = text;
  return kept;
}

std::string MarkerRemover::Finish() {
  return std::exchange(held_, {});
}

}  // namespace baton
