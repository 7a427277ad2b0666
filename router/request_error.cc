#include "router/request_error.h"

#include <absl/strings/cord.h>

#include "common/base/shortened.h"

namespace baton::router {
namespace {

constexpr const char* kMember = "baton/member";
constexpr const char* kReason = "baton/reason";

std::string Payload(const Status& status, const char* name) {
  const auto payload = status.GetPayload(name);
  return payload.has_value() ? std::string(*payload) : std::string();
}

void SetPayload(Status& status, const char* name, std::string_view value) {
  status.SetPayload(name, absl::Cord(absl::string_view(value.data(), value.size())));
}

}  // namespace

Status AtMember(Status status, std::string_view member) {
  if (MemberOf(status).empty()) SetPayload(status, kMember, member);
  return status;
}

std::string MemberOf(const Status& status) {
  return Payload(status, kMember);
}

Status WithReason(Status status, std::string_view reason) {
  SetPayload(status, kReason, reason);
  return status;
}

std::string ReasonOf(const Status& status) {
  return Payload(status, kReason);
}

std::string Shown(std::string_view text, size_t most) {
  if (text.size() <= most) return std::string(text);
  return fmt::format("{} ({} bytes)", Shortened(text, most), text.size());
}

}  // namespace baton::router
