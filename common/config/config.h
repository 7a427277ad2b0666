#pragma once

#include <string>
#include <vector>

#include <google/protobuf/message.h>

#include "common/base/status.h"
#include "proto/config.pb.h"

// The loader of the configuration. The schema, with units, ranges and defaults, is
// proto/config.proto. The loader fills its messages from YAML files and overrides. Keys are the
// names of fields; enum values are in lower case; an error names the path of the key and file:line.
namespace baton {

struct ConfigSources {
  std::vector<std::string> files;      // YAML; a later file overrides an earlier one
  std::vector<std::string> overrides;  // "path.to.field=value", value in YAML; applied after files
};

// Sets every field of `message` to the default that config.proto states for it.
void SetDefaults(google::protobuf::Message& message);

// Applies the defaults, then the files, then the overrides, and then checks all ranges. Errors:
// NotFound for a missing file; InvalidArgument for bad YAML, an unknown key, a wrong type, or a
// value that is out of range; ResourceExhausted for a file of more than 1 MiB.
Status LoadConfig(const ConfigSources& sources, google::protobuf::Message& message);

// Checks the ranges of all fields. Errors: InvalidArgument that names the path, the value and the
// range.
Status CheckRanges(const google::protobuf::Message& message);

// The message as a YAML file that LoadConfig reads back to the same message.
std::string ToYaml(const google::protobuf::Message& message);

}  // namespace baton
