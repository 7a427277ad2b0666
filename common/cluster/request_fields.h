#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "common/cluster/request.h"

// The table of the members of PassedOptions, which clients state and workers get unchanged. Like
// kSamplingFields (sampling_fields.h) it is all that the wire (wire/request_fields_wire.h), the
// checks and the APIs know of them: a field has one name, in the messages of generation.proto and
// worker.proto and in the bodies of the HTTP APIs.
namespace baton {

struct PassedField {
  std::string_view name;
  std::variant<int32_t PassedOptions::*, std::string PassedOptions::*> value;
  size_t max_bytes = 0;  // of a text
  // False: the router makes the value from other members, so no API has a member of this name.
  bool stated = true;
};

inline constexpr PassedField kPassedFields[] = {
    {"priority", &PassedOptions::priority},
    {"cache_salt", &PassedOptions::cache_salt, 1024},
    {"grammar", &PassedOptions::grammar, size_t{1} << 20, /*stated=*/false},
};

}  // namespace baton
