#pragma once

#include <cstddef>
#include <string>

#include <nlohmann/json_fwd.hpp>

namespace baton::router {

constexpr size_t kMaxErrorBytes = 2048;  // of the message of an error

// Writes JSON. A token's text may end inside a character; U+FFFD replaces invalid bytes.
std::string Dump(const nlohmann::ordered_json& json);

}  // namespace baton::router
