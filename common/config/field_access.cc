#include "common/config/field_access.h"

#include <algorithm>
#include <optional>

#include <absl/strings/ascii.h>
#include <absl/strings/numbers.h>
#include <google/protobuf/descriptor.h>

#include "common/base/host_port.h"
#include "proto/config_options.pb.h"

namespace baton {
namespace {

namespace pb = google::protobuf;

Status CheckNumber(const pb::FieldDescriptor& field, double number, const std::string& text) {
  if (!field.options().HasExtension(config::range)) return OkStatus();
  const config::Range& range = field.options().GetExtension(config::range);
  if (number >= range.min() && number <= range.max()) return OkStatus();
  return InvalidArgument("is {}; it must be in {}", text, RangeText(field));
}

const pb::EnumValueDescriptor* FindEnumValue(const pb::EnumDescriptor& type,
                                             const std::string& text) {
  if (text != absl::AsciiStrToLower(text)) return nullptr;
  return type.FindValueByName(absl::AsciiStrToUpper(text));
}

// Parses, checks the range, and calls set(value).
template <class T, class Set>
Status SetNumber(const pb::FieldDescriptor& field, const std::string& text, Set set) {
  T value{};
  bool parsed = false;
  if constexpr (std::is_same_v<T, double>) {
    parsed = absl::SimpleAtod(text, &value);
  } else {
    parsed = absl::SimpleAtoi(text, &value);
  }
  if (!parsed) {
    const std::string range = RangeText(field);
    return InvalidArgument("is \"{}\"; it must be a {}{}{}",
                           text,
                           std::is_same_v<T, double> ? "number" : "whole number",
                           range.empty() ? "" : " in ",
                           range);
  }
  BATON_RETURN_IF_ERROR(CheckNumber(field, static_cast<double>(value), text));
  set(value);
  return OkStatus();
}

// The value of a numeric field that is not repeated; nothing for other types.
std::optional<double> NumberOf(const pb::Message& message, const pb::FieldDescriptor& field) {
  const pb::Reflection& reflection = *message.GetReflection();
  switch (field.cpp_type()) {
    case pb::FieldDescriptor::CPPTYPE_INT32:
      return reflection.GetInt32(message, &field);
    case pb::FieldDescriptor::CPPTYPE_INT64:
      return static_cast<double>(reflection.GetInt64(message, &field));
    case pb::FieldDescriptor::CPPTYPE_UINT64:
      return static_cast<double>(reflection.GetUInt64(message, &field));
    case pb::FieldDescriptor::CPPTYPE_DOUBLE:
      return reflection.GetDouble(message, &field);
    default:
      return std::nullopt;
  }
}

Status CheckAddress(const pb::FieldDescriptor& field, const std::string& text) {
  if (!field.options().GetExtension(config::host_port)) return OkStatus();
  return Annotate(ParseHostPort(text).status(), "is not host:port");
}

Status SetEnum(pb::Message& message, const pb::FieldDescriptor& field, const std::string& text) {
  const auto* value = FindEnumValue(*field.enum_type(), text);
  if (value == nullptr) {
    return InvalidArgument("is \"{}\"; it must be one of {}", text, EnumNames(*field.enum_type()));
  }
  message.GetReflection()->SetEnum(&message, &field, value);
  return OkStatus();
}

Status SetBool(pb::Message& message, const pb::FieldDescriptor& field, const std::string& text) {
  if (text != "true" && text != "false") {
    return InvalidArgument("is \"{}\"; it must be true or false", text);
  }
  message.GetReflection()->SetBool(&message, &field, text == "true");
  return OkStatus();
}

}  // namespace

std::string EnumNames(const pb::EnumDescriptor& type) {
  std::string names;
  for (int i = 0; i < type.value_count(); ++i) {
    if (i > 0) names += ", ";
    names += absl::AsciiStrToLower(type.value(i)->name());
  }
  return names;
}

std::string RangeText(const pb::FieldDescriptor& field) {
  if (!field.options().HasExtension(config::range)) return "";
  const config::Range& range = field.options().GetExtension(config::range);
  return fmt::format("[{}, {}]", range.min(), range.max());
}

Status SetScalar(pb::Message& message, const pb::FieldDescriptor& field, const std::string& text) {
  const pb::Reflection& reflection = *message.GetReflection();
  switch (field.cpp_type()) {
    case pb::FieldDescriptor::CPPTYPE_INT32:
      return SetNumber<int32_t>(
          field, text, [&](int32_t v) { reflection.SetInt32(&message, &field, v); });
    case pb::FieldDescriptor::CPPTYPE_INT64:
      return SetNumber<int64_t>(
          field, text, [&](int64_t v) { reflection.SetInt64(&message, &field, v); });
    case pb::FieldDescriptor::CPPTYPE_UINT64:
      return SetNumber<uint64_t>(
          field, text, [&](uint64_t v) { reflection.SetUInt64(&message, &field, v); });
    case pb::FieldDescriptor::CPPTYPE_DOUBLE:
      return SetNumber<double>(
          field, text, [&](double v) { reflection.SetDouble(&message, &field, v); });
    case pb::FieldDescriptor::CPPTYPE_BOOL:
      return SetBool(message, field, text);
    case pb::FieldDescriptor::CPPTYPE_ENUM:
      return SetEnum(message, field, text);
    case pb::FieldDescriptor::CPPTYPE_STRING:
      if (field.is_repeated()) {
        reflection.AddString(&message, &field, text);
      } else {
        BATON_RETURN_IF_ERROR(CheckAddress(field, text));
        reflection.SetString(&message, &field, text);
      }
      return OkStatus();
    default:
      return InvalidArgument("has the type {}, which configuration does not use",
                             field.type_name());
  }
}

std::string ScalarText(const pb::Message& message, const pb::FieldDescriptor& field, int index) {
  const pb::Reflection& reflection = *message.GetReflection();
  switch (field.cpp_type()) {
    case pb::FieldDescriptor::CPPTYPE_INT32:
      return fmt::format("{}", reflection.GetInt32(message, &field));
    case pb::FieldDescriptor::CPPTYPE_INT64:
      return fmt::format("{}", reflection.GetInt64(message, &field));
    case pb::FieldDescriptor::CPPTYPE_UINT64:
      return fmt::format("{}", reflection.GetUInt64(message, &field));
    case pb::FieldDescriptor::CPPTYPE_DOUBLE:
      return fmt::format("{}", reflection.GetDouble(message, &field));
    case pb::FieldDescriptor::CPPTYPE_BOOL:
      return reflection.GetBool(message, &field) ? "true" : "false";
    case pb::FieldDescriptor::CPPTYPE_ENUM:
      return absl::AsciiStrToLower(reflection.GetEnum(message, &field)->name());
    case pb::FieldDescriptor::CPPTYPE_STRING:
      return index < 0 ? reflection.GetString(message, &field)
                       : reflection.GetRepeatedString(message, &field, index);
    default:
      return "";
  }
}

Status CheckScalar(const pb::Message& message, const pb::FieldDescriptor& field) {
  if (field.cpp_type() == pb::FieldDescriptor::CPPTYPE_STRING) {
    const std::string text = message.GetReflection()->GetString(message, &field);
    if (field.options().GetExtension(config::required) && text.empty()) {
      return InvalidArgument("is empty; it must be given");
    }
    return CheckAddress(field, text);
  }
  if (const auto number = NumberOf(message, field)) {
    return CheckNumber(field, *number, ScalarText(message, field, -1));
  }
  return OkStatus();
}

}  // namespace baton
