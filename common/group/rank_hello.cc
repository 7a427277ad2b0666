#include "common/group/rank_hello.h"

#include <sstream>
#include <string_view>

#include <nlohmann/json.hpp>

#include "common/base/json.h"

namespace baton {
namespace {

Status Differs(int rank, std::string_view what, std::string_view ours, std::string_view theirs) {
  return MakeStatus(StatusCode::kFailedPrecondition,
                    "rank {} has the {} '{}'; rank 0 has '{}'",
                    rank,
                    what,
                    theirs,
                    ours);
}

// The first line in which the two texts differ, of each.
std::pair<std::string, std::string> FirstDifference(const std::string& ours,
                                                    const std::string& theirs) {
  std::istringstream a(ours);
  std::istringstream b(theirs);
  std::string line_a;
  std::string line_b;
  while (true) {
    const bool more_a = static_cast<bool>(std::getline(a, line_a));
    const bool more_b = static_cast<bool>(std::getline(b, line_b));
    if (!more_a) line_a.clear();
    if (!more_b) line_b.clear();
    if (line_a != line_b || (!more_a && !more_b)) return {line_a, line_b};
  }
}

}  // namespace

std::string RankHello::ToJson() const {
  return nlohmann::json{{"rank", rank},
                        {"program", program},
                        {"settings", settings},
                        {"fingerprint", fingerprint},
                        {"weights_high", weights.high},
                        {"weights_low", weights.low},
                        {"device", device},
                        {"blocks", blocks}}
      .dump();
}

StatusOr<RankHello> RankHello::FromJson(const std::string& text) {
  BATON_ASSIGN_OR_RETURN(const nlohmann::json json, ParseJson("a rank's hello", text));
  RankHello hello;
  const auto take = [&](const char* name, auto& to) {
    const auto found = json.find(name);
    if (found == json.end()) return false;
    if constexpr (std::is_same_v<std::decay_t<decltype(to)>, std::string>) {
      if (!found->is_string()) return false;
      to = found->template get<std::string>();
    } else if constexpr (std::is_same_v<std::decay_t<decltype(to)>, uint64_t>) {
      if (!found->is_number_unsigned()) return false;
      to = found->template get<uint64_t>();
    } else {
      if (!found->is_number_integer()) return false;
      to = found->template get<int32_t>();
    }
    return true;
  };
  if (!json.is_object() || !take("rank", hello.rank) || !take("program", hello.program) ||
      !take("settings", hello.settings) || !take("fingerprint", hello.fingerprint) ||
      !take("weights_high", hello.weights.high) || !take("weights_low", hello.weights.low) ||
      !take("device", hello.device) || !take("blocks", hello.blocks)) {
    return InvalidArgument("a rank's hello lacks a member: {}", text.substr(0, 200));
  }
  return hello;
}

Status CheckSameGroup(const RankHello& ours, const RankHello& theirs) {
  if (theirs.program != ours.program) {
    return Differs(theirs.rank, "program", ours.program, theirs.program);
  }
  if (theirs.settings != ours.settings) {
    const auto [our_line, their_line] = FirstDifference(ours.settings, theirs.settings);
    return Differs(theirs.rank, "setting", our_line, their_line);
  }
  if (theirs.fingerprint != ours.fingerprint) {
    return Differs(theirs.rank, "model fingerprint", ours.fingerprint, theirs.fingerprint);
  }
  return OkStatus();
}

}  // namespace baton
