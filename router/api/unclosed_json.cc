#include "router/api/unclosed_json.h"

#include <utility>

namespace baton::router {

void UnclosedJson::Append(std::string_view text) {
  for (const char c : text) {
    if (in_string_) {
      if (std::exchange(escaped_, false)) continue;
      escaped_ = c == '\\';
      in_string_ = c != '"';
    } else if (c == '"') {
      in_string_ = true;
    } else if (c == '{' || c == '[') {
      open_ += c;
    } else if ((c == '}' || c == ']') && !open_.empty()) {
      open_.pop_back();
    }
  }
}

std::string UnclosedJson::WrongEnd() const {
  std::string end = escaped_ ? "\\" : "";
  if (in_string_) end += '"';
  end += !open_.empty() && open_.back() == '[' ? '}' : ']';
  return end;
}

}  // namespace baton::router
