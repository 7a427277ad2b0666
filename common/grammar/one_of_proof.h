#pragma once

#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "common/base/status.h"

namespace baton {

// Checks that no value matches two of the schemas `options` of oneOf: by their types, by values of
// const and enum, or by a required property with such values, as `kind`. Follows references in the
// whole schema `root`. A oneOf that is proved means the same as anyOf. Errors: InvalidArgument,
// without a path, for options that may overlap or take too long to compare.
Status ProveOneOf(const nlohmann::ordered_json& options, const nlohmann::ordered_json& root);

}  // namespace baton
