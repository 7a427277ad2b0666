#pragma once

#include <string>
#include <vector>

#include <google/protobuf/message.h>

#include "common/base/status.h"
#include "proto/config.pb.h"

// Configuration: the schema, with units, ranges and defaults, is proto/config.proto; this loader
// fills messages of it from YAML files and overrides. Keys are the fields' names; enum values are
// written in lower case; an error names the path of the key, and file:line.
namespace baton {

struct ConfigSources {
  std::vector<std::string> files;      // YAML; later files win
  std::vector<std::string> overrides;  // "path.to.field=value", value in YAML; win over files
};

// Sets every field of `message` to the default that config.proto states for it.
void SetDefaults(google::protobuf::Message& message);

// Defaults, then files, then overrides, then a check of all ranges. Errors: NotFound for a file
// that is absent; InvalidArgument for bad YAML, an unknown key, a wrong type, a value out of range.
Status LoadConfig(const ConfigSources& sources, google::protobuf::Message& message);

// Checks the ranges of all fields; InvalidArgument naming the path, the value, and the range.
Status CheckRanges(const google::protobuf::Message& message);

// The message as a YAML file that LoadConfig reads back to the same message.
std::string ToYaml(const google::protobuf::Message& message);

}  // namespace baton
