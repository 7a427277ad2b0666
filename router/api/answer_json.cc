#include "router/api/answer_json.h"

#include <nlohmann/json.hpp>

namespace baton::router {

std::string Dump(const nlohmann::ordered_json& json) {
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace baton::router
