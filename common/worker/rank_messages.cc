#include "common/worker/rank_messages.h"

#include <algorithm>

#include <absl/strings/ascii.h>
#include <absl/strings/escaping.h>
#include <nlohmann/json.hpp>

#include "common/base/json.h"

namespace baton {
namespace {

// The integer member `name` of the JSON object `text`.
StatusOr<int32_t> NumberIn(const std::string& text, const char* name) {
  BATON_ASSIGN_OR_RETURN(const nlohmann::json json, ParseJson("a message of a group", text));
  const auto found = json.find(name);
  if (found != json.end() && found->is_number_integer()) return found->get<int32_t>();
  return InvalidArgument("a message of a group has no number '{}': {}", name, text.substr(0, 200));
}

}  // namespace

std::string RankMessage(int rank) {
  return nlohmann::json{{"rank", rank}}.dump();
}

StatusOr<int> RankIn(const std::string& text) {
  return NumberIn(text, "rank");
}

std::string BlocksMessage(int32_t blocks) {
  return nlohmann::json{{"blocks", blocks}}.dump();
}

StatusOr<int32_t> BlocksIn(const std::string& text) {
  return NumberIn(text, "blocks");
}

std::string ShardMessage(const KvShard& shard, std::string_view exported) {
  return nlohmann::json{{"first_layer", shard.first_layer},
                        {"layer_count", shard.layer_count},
                        {"first_head", shard.first_head},
                        {"head_count", shard.head_count},
                        {"memory", absl::BytesToHexString(std::string(exported))}}
      .dump();
}

StatusOr<KvShard> ShardIn(const std::string& text) {
  KvShard shard;
  BATON_ASSIGN_OR_RETURN(shard.first_layer, NumberIn(text, "first_layer"));
  BATON_ASSIGN_OR_RETURN(shard.layer_count, NumberIn(text, "layer_count"));
  BATON_ASSIGN_OR_RETURN(shard.first_head, NumberIn(text, "first_head"));
  BATON_ASSIGN_OR_RETURN(shard.head_count, NumberIn(text, "head_count"));
  return shard;
}

StatusOr<std::string> ExportIn(const std::string& text) {
  BATON_ASSIGN_OR_RETURN(const nlohmann::json json, ParseJson("a message of a group", text));
  const auto found = json.find("memory");
  const bool is_hex =
      found != json.end() && found->is_string() &&
      found->get_ref<const std::string&>().size() % 2 == 0 &&
      std::ranges::all_of(found->get_ref<const std::string&>(), absl::ascii_isxdigit);
  if (is_hex) return absl::HexStringToBytes(found->get<std::string>());
  return InvalidArgument("a message of a group has no memory in hex: {}", text.substr(0, 200));
}

std::string ErrorMessage(const Status& status) {
  return nlohmann::json{{"error", std::string(Message(status))},
                        {"code", static_cast<int>(status.code())}}
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Status ErrorIn(const std::string& text) {
  const auto json = ParseJson("a message of a group", text);
  if (!json.ok() || !json->is_object() || !json->contains("error")) return OkStatus();
  const nlohmann::json& error = (*json)["error"];
  const auto code = NumberIn(text, "code");
  return Status(code.ok() ? static_cast<StatusCode>(*code) : StatusCode::kInternal,
                error.is_string() ? error.get<std::string>() : error.dump());
}

}  // namespace baton
