#pragma once

#include <string>

#include <google/protobuf/message.h>

#include "common/base/status.h"

// Reads, writes and checks scalar fields of a protobuf message by reflection, as text.
namespace baton {

// Sets (or, for a repeated field, appends) the scalar or enum `field` of `message` from `text`.
// Errors: InvalidArgument that states what is expected: a type, a list of names, or the range.
Status SetScalar(google::protobuf::Message& message,
                 const google::protobuf::FieldDescriptor& field,
                 const std::string& text);

// The scalar or enum as text that SetScalar accepts. `index` is the element of a repeated field;
// -1 for a field that is not repeated.
std::string ScalarText(const google::protobuf::Message& message,
                       const google::protobuf::FieldDescriptor& field,
                       int index);

// "[1, 64]", or empty when config.proto states no range for the field.
std::string RangeText(const google::protobuf::FieldDescriptor& field);

// InvalidArgument when a scalar of `message` that is not repeated is out of range, is required but
// empty, or must be host:port and is not.
Status CheckScalar(const google::protobuf::Message& message,
                   const google::protobuf::FieldDescriptor& field);

// The lower-case names of the enum's values: "fcfs, priority, deadline".
std::string EnumNames(const google::protobuf::EnumDescriptor& type);

}  // namespace baton
