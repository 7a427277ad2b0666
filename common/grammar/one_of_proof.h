#pragma once

#include <nlohmann/json_fwd.hpp>

#include "common/base/status.h"

namespace baton {

// Makes sure that an output for one of the schemas `options` of oneOf matches no other of them, so
// that oneOf means the same as anyOf. Options are apart by their types, by values of const and
// enum, by those of a property, as `kind`, or by a property that one requires and the other has
// not. Outputs have no properties that a schema neither declares nor requires. Where nothing else
// tells two options apart, a property that only the second one requires is forbidden in the first
// one
// (`false`). Follows references in the whole schema `root`. Errors: InvalidArgument, without a
// path, for options that may overlap or take too long to compare.
Status SeparateOptions(nlohmann::ordered_json& options, const nlohmann::ordered_json& root);

}  // namespace baton
