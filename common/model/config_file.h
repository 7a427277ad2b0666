#pragma once

#include <memory>
#include <string>

#include "common/base/status.h"
#include "common/model/config_fields.h"

namespace baton {

// Reads a JSON file of a Hugging Face directory, such as config.json. Infinite numbers may be
// written as Python does, without quotes. Errors: NotFound, and InvalidArgument naming the file and
// the place of the syntax error.
StatusOr<std::unique_ptr<JsonFields>> ReadConfigFile(const std::string& path);

}  // namespace baton
