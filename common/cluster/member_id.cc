#include "common/cluster/member_id.h"

#include <algorithm>

namespace baton {
namespace {

bool IsControl(char c) {
  return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
}

}  // namespace

bool HasControlCharacter(std::string_view text) {
  return std::ranges::any_of(text, IsControl);
}

Status CheckMemberId(std::string_view field, std::string_view id) {
  if (id.size() > kMaxMemberId) {
    return InvalidArgument(
        "{} has {} bytes; at most {} are allowed", field, id.size(), kMaxMemberId);
  }
  const auto control = std::ranges::find_if(id, IsControl);
  if (control == id.end()) return OkStatus();
  return InvalidArgument("{} has the control character {:#04x} at byte {}; an id must have none",
                         field,
                         static_cast<unsigned char>(*control),
                         control - id.begin());
}

}  // namespace baton
