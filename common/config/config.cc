#include "common/config/config.h"

#include <set>
#include <utility>

#include <google/protobuf/descriptor.h>
#include <yaml-cpp/yaml.h>

#include "common/base/check.h"
#include "common/base/mapped_file.h"
#include "common/config/field_access.h"

namespace baton {
namespace {

namespace pb = google::protobuf;

constexpr size_t kMaxFileBytes = size_t{1} << 20;
constexpr int kMaxDepth = 32;

std::string Join(const std::string& path, const std::string& name) {
  return path.empty() ? name : path + "." + name;
}

std::string FieldNames(const pb::Descriptor& type) {
  std::string names;
  for (int i = 0; i < type.field_count(); ++i) {
    if (i > 0) names += ", ";
    names += type.field(i)->name();
  }
  return names;
}

std::string WhyUnknown(const pb::Descriptor& type, const std::string& name) {
  for (int i = 0; i < type.field_count(); ++i) {
    const pb::FieldDescriptor& field = *type.field(i);
    if (!field.options().HasExtension(config::former_name)) continue;
    if (field.options().GetExtension(config::former_name) == name) {
      return fmt::format("was renamed to {}", field.name());
    }
  }
  return "is unknown; known keys here: " + FieldNames(type);
}

// Applies YAML from one source to messages. Errors begin with the source and line.
class YamlReader final {
 public:
  // `source`: the name of a file, or "--set …". `has_lines`: errors state the line of the node.
  YamlReader(std::string source, bool has_lines)
      : source_(std::move(source)), has_lines_(has_lines) {}

  Status Apply(const YAML::Node& node,
               pb::Message& message,
               const std::string& path,
               int depth = 0) const {
    if (node.IsNull()) return OkStatus();
    if (!node.IsMap()) return Error(node, path, "must be a mapping of keys to values");
    if (depth > kMaxDepth) return Error(node, path, "is nested too deeply");
    std::set<std::string> seen;
    for (const auto& entry : node) {
      if (!entry.first.IsScalar()) return Error(entry.first, path, "has a key that is not a name");
      const std::string& name = entry.first.Scalar();
      const std::string field_path = Join(path, name);
      if (!seen.insert(name).second) return Error(entry.first, field_path, "is given twice");
      const pb::Descriptor& type = *message.GetDescriptor();
      const pb::FieldDescriptor* field = type.FindFieldByName(name);
      if (field == nullptr) {
        return Error(entry.first, field_path, WhyUnknown(type, name));
      }
      BATON_RETURN_IF_ERROR(ApplyField(entry.second, message, *field, field_path, depth));
    }
    return OkStatus();
  }

  Status ApplyField(const YAML::Node& node,
                    pb::Message& message,
                    const pb::FieldDescriptor& field,
                    const std::string& path,
                    int depth) const {
    if (field.is_map()) return ApplyMap(node, message, field, path);
    if (field.is_repeated()) return ApplyList(node, message, field, path);
    if (field.cpp_type() == pb::FieldDescriptor::CPPTYPE_MESSAGE) {
      return Apply(
          node, *message.GetReflection()->MutableMessage(&message, &field), path, depth + 1);
    }
    return ApplyScalar(node, message, field, path);
  }

 private:
  Status Error(const YAML::Node& node, const std::string& path, std::string_view what) const {
    const std::string line = has_lines_ ? fmt::format(":{}", node.Mark().line + 1) : "";
    return InvalidArgument("{}{}: {} {}", source_, line, path.empty() ? "the file" : path, what);
  }

  Status ApplyScalar(const YAML::Node& node,
                     pb::Message& message,
                     const pb::FieldDescriptor& field,
                     const std::string& path) const {
    if (node.IsNull() && field.cpp_type() == pb::FieldDescriptor::CPPTYPE_STRING) {
      return SetScalar(message, field, "");
    }
    if (!node.IsScalar()) return Error(node, path, "must be a single value");
    const Status set = SetScalar(message, field, node.Scalar());
    return set.ok() ? set : Error(node, path, Message(set));
  }

  // Replaces the list that `message` has.
  Status ApplyList(const YAML::Node& node,
                   pb::Message& message,
                   const pb::FieldDescriptor& field,
                   const std::string& path) const {
    if (!node.IsSequence()) return Error(node, path, "must be a list: [a, b]");
    message.GetReflection()->ClearField(&message, &field);
    for (const auto& item : node) {
      BATON_RETURN_IF_ERROR(ApplyScalar(item, message, field, path));
    }
    return OkStatus();
  }

  // Adds the entries to those that `message` has.
  Status ApplyMap(const YAML::Node& node,
                  pb::Message& message,
                  const pb::FieldDescriptor& field,
                  const std::string& path) const {
    if (!node.IsMap()) return Error(node, path, "must be a mapping: {key: value}");
    const pb::Reflection& reflection = *message.GetReflection();
    const pb::FieldDescriptor& key = *field.message_type()->map_key();
    const pb::FieldDescriptor& value = *field.message_type()->map_value();
    for (const auto& entry : node) {
      pb::Message& item = *reflection.AddMessage(&message, &field);
      BATON_RETURN_IF_ERROR(ApplyScalar(entry.first, item, key, path));
      BATON_RETURN_IF_ERROR(ApplyScalar(entry.second, item, value, path));
    }
    return OkStatus();
  }

  std::string source_;
  bool has_lines_;
};

Status ApplyFile(const std::string& file, pb::Message& message) {
  BATON_ASSIGN_OR_RETURN(const std::string text, ReadFile(file, kMaxFileBytes));
  try {
    return YamlReader(file, /*has_lines=*/true).Apply(YAML::Load(text), message, "");
  } catch (const YAML::Exception& error) {
    return InvalidArgument("{}:{}: not valid YAML: {}", file, error.mark.line + 1, error.msg);
  }
}

// "a.b=1" is read as the YAML {a: {b: 1}}.
Status ApplyOverride(const std::string& text, pb::Message& message) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) {
    return InvalidArgument("--set {}: it must have the form path.to.field=value", text);
  }
  try {
    YAML::Node node = YAML::Load(text.substr(equals + 1));
    std::string path = text.substr(0, equals);
    for (size_t dot = path.rfind('.');; dot = path.rfind('.')) {
      YAML::Node parent(YAML::NodeType::Map);
      const bool more = dot != std::string::npos;
      parent.force_insert(more ? path.substr(dot + 1) : path, node);
      node.reset(parent);
      if (!more) break;
      path.resize(dot);
    }
    return YamlReader("--set " + text, /*has_lines=*/false).Apply(node, message, "");
  } catch (const YAML::Exception& error) {
    return InvalidArgument("--set {}: not valid YAML: {}", text, error.msg);
  }
}

Status CheckRangesAt(const pb::Message& message, const std::string& path) {
  const pb::Descriptor& type = *message.GetDescriptor();
  for (int i = 0; i < type.field_count(); ++i) {
    const pb::FieldDescriptor& field = *type.field(i);
    if (field.is_repeated()) continue;
    const std::string field_path = Join(path, field.name());
    if (field.cpp_type() == pb::FieldDescriptor::CPPTYPE_MESSAGE) {
      BATON_RETURN_IF_ERROR(
          CheckRangesAt(message.GetReflection()->GetMessage(message, &field), field_path));
    } else if (const Status checked = CheckScalar(message, field); !checked.ok()) {
      return InvalidArgument("{} {}", field_path, Message(checked));
    }
  }
  return OkStatus();
}

void EmitMessage(const pb::Message& message, YAML::Emitter& out);

void EmitField(const pb::Message& message, const pb::FieldDescriptor& field, YAML::Emitter& out) {
  const pb::Reflection& reflection = *message.GetReflection();
  if (field.is_map()) {
    const pb::Descriptor& entry = *field.message_type();
    std::map<std::string, std::string> sorted;
    for (int i = 0; i < reflection.FieldSize(message, &field); ++i) {
      const pb::Message& item = reflection.GetRepeatedMessage(message, &field, i);
      sorted[ScalarText(item, *entry.map_key(), -1)] = ScalarText(item, *entry.map_value(), -1);
    }
    out << YAML::Flow << sorted;
  } else if (field.is_repeated()) {
    out << YAML::Flow << YAML::BeginSeq;
    for (int i = 0; i < reflection.FieldSize(message, &field); ++i) {
      out << ScalarText(message, field, i);
    }
    out << YAML::EndSeq;
  } else if (field.cpp_type() == pb::FieldDescriptor::CPPTYPE_MESSAGE) {
    EmitMessage(reflection.GetMessage(message, &field), out);
  } else {
    if (field.cpp_type() == pb::FieldDescriptor::CPPTYPE_STRING) out << YAML::DoubleQuoted;
    out << ScalarText(message, field, -1);
    if (const std::string range = RangeText(field); !range.empty()) out << YAML::Comment(range);
    if (field.enum_type() != nullptr) out << YAML::Comment(EnumNames(*field.enum_type()));
  }
}

void EmitMessage(const pb::Message& message, YAML::Emitter& out) {
  out << YAML::BeginMap;
  const pb::Descriptor& type = *message.GetDescriptor();
  for (int i = 0; i < type.field_count(); ++i) {
    out << YAML::Key << type.field(i)->name() << YAML::Value;
    EmitField(message, *type.field(i), out);
  }
  out << YAML::EndMap;
}

}  // namespace

void SetDefaults(pb::Message& message) {
  const YamlReader reader("proto/config.proto", /*has_lines=*/false);
  const pb::Descriptor& type = *message.GetDescriptor();
  for (int i = 0; i < type.field_count(); ++i) {
    const pb::FieldDescriptor& field = *type.field(i);
    const std::string& text = field.options().GetExtension(config::default_);
    if (!text.empty()) {
      const Status set = reader.ApplyField(YAML::Load(text), message, field, field.name(), 0);
      BATON_CHECK(set.ok(), "default of {}: {}", field.full_name(), Message(set));
    } else if (!field.is_repeated() && field.cpp_type() == pb::FieldDescriptor::CPPTYPE_MESSAGE) {
      SetDefaults(*message.GetReflection()->MutableMessage(&message, &field));
    }
  }
}

Status LoadConfig(const ConfigSources& sources, pb::Message& message) {
  SetDefaults(message);
  for (const auto& file : sources.files) BATON_RETURN_IF_ERROR(ApplyFile(file, message));
  for (const auto& text : sources.overrides) BATON_RETURN_IF_ERROR(ApplyOverride(text, message));
  return CheckRanges(message);
}

Status CheckRanges(const pb::Message& message) {
  return CheckRangesAt(message, "");
}

std::string ToYaml(const pb::Message& message) {
  YAML::Emitter out;
  EmitMessage(message, out);
  return std::string(out.c_str()) + "\n";
}

}  // namespace baton
