#pragma once

#include <string>

#include <google/protobuf/message.h>

#include "common/base/status.h"

// Scalars of a protobuf message by reflection: from text, to text, and their ranges.
namespace baton {

// Sets (or, for a repeated field, appends) the scalar or enum `field` of `message` from `text`.
// InvalidArgument says what is expected: a type, a list of names, or the range.
Status SetScalar(google::protobuf::Message& message,
                 const google::protobuf::FieldDescriptor& field,
                 const std::string& text);

// The scalar or enum as SetScalar reads it; `index` is of a repeated field, else -1.
std::string ScalarText(const google::protobuf::Message& message,
                       const google::protobuf::FieldDescriptor& field,
                       int index);

// "[1, 64]", or empty when config.proto states no range for the field.
std::string RangeText(const google::protobuf::FieldDescriptor& field);

// InvalidArgument when a singular scalar of `message` is outside the range of its field, empty
// though it is required, or no host:port though it must be one.
Status CheckScalar(const google::protobuf::Message& message,
                   const google::protobuf::FieldDescriptor& field);

// The lower-case names of the enum's values: "fcfs, priority, deadline".
std::string EnumNames(const google::protobuf::EnumDescriptor& type);

}  // namespace baton
