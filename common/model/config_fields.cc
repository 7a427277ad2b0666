#include "common/model/config_fields.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <nlohmann/json.hpp>

#include "common/base/json.h"

namespace baton {
namespace {

constexpr size_t kMaxListed = 1024;

}  // namespace

void ConfigFields::Fail(Status status) {
  if (status_.ok()) status_ = std::move(status);
}

int32_t ConfigFields::Int(std::string_view key, int32_t low, int32_t high) {
  const StatusOr<int64_t> value = ReadInt(key);
  if (!value.ok()) {
    Fail(value.status());
    return low;
  }
  if (*value < low || *value > high) {
    Fail(InvalidArgument(
        "{}: {} is {}; it must be between {} and {}", file_, key, *value, low, high));
    return low;
  }
  return static_cast<int32_t>(*value);
}

int32_t ConfigFields::IntOr(std::string_view key, int32_t fallback, int32_t low, int32_t high) {
  return Has(key) ? Int(key, low, high) : fallback;
}

double ConfigFields::Number(std::string_view key, double low, double high) {
  const StatusOr<double> value = ReadNumber(key);
  if (!value.ok()) {
    Fail(value.status());
    return low;
  }
  if (!(*value >= low && *value <= high)) {
    Fail(InvalidArgument(
        "{}: {} is {}; it must be between {} and {}", file_, key, *value, low, high));
    return low;
  }
  return *value;
}

double ConfigFields::NumberOr(std::string_view key, double fallback, double low, double high) {
  return Has(key) ? Number(key, low, high) : fallback;
}

bool ConfigFields::BoolOr(std::string_view key, bool fallback) {
  if (!Has(key)) return fallback;
  const StatusOr<bool> value = ReadBool(key);
  if (!value.ok()) Fail(value.status());
  return value.ok() ? *value : fallback;
}

std::string ConfigFields::TextOr(std::string_view key, std::string_view fallback) {
  if (!Has(key)) return std::string(fallback);
  StatusOr<std::string> value = ReadText(key);
  if (!value.ok()) Fail(value.status());
  return value.ok() ? *std::move(value) : std::string(fallback);
}

std::vector<int32_t> ConfigFields::IntsOr(std::string_view key, int32_t low, int32_t high) {
  if (!Has(key)) return {};
  const StatusOr<std::vector<int64_t>> values = ReadInts(key);
  if (!values.ok()) {
    Fail(values.status());
    return {};
  }
  if (values->size() > kMaxListed) {
    Fail(InvalidArgument(
        "{}: {} has {} entries; at most {} are allowed", file_, key, values->size(), kMaxListed));
    return {};
  }
  std::vector<int32_t> result;
  for (const int64_t value : *values) {
    if (value < low || value > high) {
      Fail(InvalidArgument(
          "{}: {} has {}; it must be between {} and {}", file_, key, value, low, high));
      return {};
    }
    result.push_back(static_cast<int32_t>(value));
  }
  return result;
}

JsonFields::JsonFields(std::string file, nlohmann::json object)
    : ConfigFields(std::move(file)),
      object_(std::make_unique<const nlohmann::json>(std::move(object))) {}

JsonFields::~JsonFields() = default;

StatusOr<std::unique_ptr<JsonFields>> JsonFields::Parse(std::string file, std::string_view text) {
  BATON_ASSIGN_OR_RETURN(nlohmann::json json, ParseJson(file, text));
  if (!json.is_object()) return InvalidArgument("{}: not a JSON object", file);
  return std::unique_ptr<JsonFields>(new JsonFields(std::move(file), std::move(json)));
}

StatusOr<const nlohmann::json*> JsonFields::Find(std::string_view key) const {
  const auto found = object_->find(key);
  if (found == object_->end() || found->is_null()) {
    return MakeStatus(StatusCode::kNotFound, "{}: {} is missing", file(), key);
  }
  return &*found;
}

bool JsonFields::Has(std::string_view key) const {
  const auto found = object_->find(key);
  return found != object_->end() && !found->is_null();
}

std::vector<std::string> JsonFields::Keys() const {
  std::vector<std::string> keys;
  for (const auto& member : object_->items()) keys.push_back(member.key());
  return keys;
}

bool JsonFields::IsNull(std::string_view key) const {
  const auto found = object_->find(key);
  return found != object_->end() && found->is_null();
}

bool JsonFields::IsNumber(std::string_view key) const {
  const auto found = object_->find(key);
  return found != object_->end() && found->is_number();
}

bool JsonFields::IsText(std::string_view key, std::string_view text) const {
  const auto found = object_->find(key);
  return found != object_->end() && found->is_string() && found->get<std::string>() == text;
}

StatusOr<std::unique_ptr<JsonFields>> JsonFields::Object(std::string_view key) const {
  BATON_ASSIGN_OR_RETURN(const nlohmann::json* value, Find(key));
  if (!value->is_object()) {
    return InvalidArgument("{}: {} is {}; it must be an object", file(), key, value->type_name());
  }
  return std::unique_ptr<JsonFields>(new JsonFields(fmt::format("{}: {}", file(), key), *value));
}

StatusOr<std::vector<double>> JsonFields::Numbers(std::string_view key,
                                                  double low,
                                                  double high) const {
  BATON_ASSIGN_OR_RETURN(const nlohmann::json* value, Find(key));
  const auto is_infinite = [](const nlohmann::json& v) {
    return v == nlohmann::json{{"__float__", "Infinity"}};
  };
  const bool numbers =
      value->is_array() && std::all_of(value->begin(), value->end(), [&](const nlohmann::json& v) {
        return v.is_number() || is_infinite(v);
      });
  if (!numbers) return InvalidArgument("{}: {} must be a list of numbers", file(), key);
  std::vector<double> result;
  for (const nlohmann::json& entry : *value) {
    const double number =
        is_infinite(entry) ? std::numeric_limits<double>::infinity() : entry.get<double>();
    if (!(number >= low && number <= high)) {
      return InvalidArgument(
          "{}: {} has {}; it must be between {} and {}", file(), key, number, low, high);
    }
    result.push_back(number);
  }
  return result;
}

StatusOr<std::vector<std::string>> JsonFields::Texts(std::string_view key) const {
  BATON_ASSIGN_OR_RETURN(const nlohmann::json* value, Find(key));
  std::vector<std::string> texts;
  const bool strings =
      value->is_array() && std::all_of(value->begin(), value->end(), [](const nlohmann::json& v) {
        return v.is_string();
      });
  if (!strings) return InvalidArgument("{}: {} must be a list of strings", file(), key);
  for (const nlohmann::json& text : *value) texts.push_back(text.get<std::string>());
  return texts;
}

StatusOr<std::vector<bool>> JsonFields::LayersOfKind(std::string_view key,
                                                     size_t layers,
                                                     std::string_view kind,
                                                     std::string_view other) const {
  BATON_ASSIGN_OR_RETURN(const std::vector<std::string> kinds, Texts(key));
  if (kinds.size() != layers) {
    return InvalidArgument(
        "{}: {} has {} entries for {} layers", file(), key, kinds.size(), layers);
  }
  std::vector<bool> of_kind;
  for (const std::string& one : kinds) {
    of_kind.push_back(one == kind);
    if (one == kind || one == other) continue;
    return MakeStatus(StatusCode::kUnimplemented,
                      "{}: {} has {}; {} and {} are supported",
                      file(),
                      key,
                      one,
                      other,
                      kind);
  }
  return of_kind;
}

StatusOr<int64_t> JsonFields::ReadInt(std::string_view key) const {
  BATON_ASSIGN_OR_RETURN(const nlohmann::json* value, Find(key));
  const bool fits = value->is_number_integer() &&
                    !(value->is_number_unsigned() &&
                      value->get<uint64_t>() > uint64_t{std::numeric_limits<int64_t>::max()});
  if (fits) return value->get<int64_t>();
  // Whole numbers are sometimes written with a point: 8192.0.
  if (value->is_number_float()) {
    const auto number = value->get<double>();
    if (number > -1e15 && number < 1e15 &&
        number == static_cast<double>(static_cast<int64_t>(number))) {
      return static_cast<int64_t>(number);
    }
  }
  return InvalidArgument("{}: {} is {}; it must be an integer", file(), key, value->dump());
}

StatusOr<double> JsonFields::ReadNumber(std::string_view key) const {
  BATON_ASSIGN_OR_RETURN(const nlohmann::json* value, Find(key));
  if (value->is_number()) return value->get<double>();
  return InvalidArgument("{}: {} is {}; it must be a number", file(), key, value->type_name());
}

StatusOr<bool> JsonFields::ReadBool(std::string_view key) const {
  BATON_ASSIGN_OR_RETURN(const nlohmann::json* value, Find(key));
  if (value->is_boolean()) return value->get<bool>();
  return InvalidArgument("{}: {} is {}; it must be a boolean", file(), key, value->type_name());
}

StatusOr<std::string> JsonFields::ReadText(std::string_view key) const {
  BATON_ASSIGN_OR_RETURN(const nlohmann::json* value, Find(key));
  if (value->is_string()) return value->get<std::string>();
  return InvalidArgument("{}: {} is {}; it must be a string", file(), key, value->type_name());
}

StatusOr<std::vector<int64_t>> JsonFields::ReadInts(std::string_view key) const {
  BATON_ASSIGN_OR_RETURN(const nlohmann::json* value, Find(key));
  if (!value->is_array()) {
    BATON_ASSIGN_OR_RETURN(const int64_t number, ReadInt(key));
    return std::vector<int64_t>{number};
  }
  std::vector<int64_t> numbers;
  for (const nlohmann::json& number : *value) {
    if (!number.is_number_integer()) {
      return InvalidArgument("{}: {} must be a list of integers", file(), key);
    }
    numbers.push_back(number.get<int64_t>());
  }
  return numbers;
}

GgufFields::GgufFields(const GgufFile& gguf, std::string prefix)
    : ConfigFields(gguf.path()), gguf_(gguf), prefix_(std::move(prefix)) {}

bool GgufFields::Has(std::string_view key) const {
  return gguf_.Has(Key(key));
}

StatusOr<int64_t> GgufFields::ReadInt(std::string_view key) const {
  StatusOr<int64_t> one = gguf_.Int(Key(key));
  if (one.ok()) return one;
  const StatusOr<std::vector<int64_t>> list = gguf_.Ints(Key(key));
  if (!list.ok()) return one;
  const bool equal = !list->empty() && std::all_of(list->begin(), list->end(), [&](int64_t value) {
    return value == list->front();
  });
  if (equal) return list->front();
  return InvalidArgument("{}: {} differs between layers, which is not supported", file(), Key(key));
}

StatusOr<double> GgufFields::ReadNumber(std::string_view key) const {
  return gguf_.Float(Key(key));
}

StatusOr<bool> GgufFields::ReadBool(std::string_view key) const {
  return gguf_.Bool(Key(key));
}

StatusOr<std::string> GgufFields::ReadText(std::string_view key) const {
  BATON_ASSIGN_OR_RETURN(const std::string_view text, gguf_.String(Key(key)));
  return std::string(text);
}

StatusOr<std::vector<int64_t>> GgufFields::ReadInts(std::string_view key) const {
  const StatusOr<int64_t> one = gguf_.Int(Key(key));
  if (one.ok()) return std::vector<int64_t>{*one};
  return gguf_.Ints(Key(key));
}

StatusOr<std::vector<bool>> GgufFields::Flags(std::string_view key, size_t layers) const {
  BATON_ASSIGN_OR_RETURN(std::vector<bool> flags, gguf_.Bools(Key(key)));
  BATON_RETURN_IF_ERROR(CheckEntries(key, flags.size(), layers));
  flags.resize(layers);
  return flags;
}

StatusOr<std::vector<int32_t>> GgufFields::OfLayers(std::string_view key,
                                                    size_t layers,
                                                    int32_t low,
                                                    int32_t high) const {
  std::vector<int64_t> numbers;
  if (const StatusOr<int64_t> one = gguf_.Int(Key(key)); one.ok()) {
    numbers.assign(layers, *one);
  } else {
    BATON_ASSIGN_OR_RETURN(numbers, gguf_.Ints(Key(key)));
    BATON_RETURN_IF_ERROR(CheckEntries(key, numbers.size(), layers));
  }
  numbers.resize(layers);
  std::vector<int32_t> result;
  for (const int64_t number : numbers) {
    if (number < low || number > high) {
      return InvalidArgument(
          "{}: {} has {}; it must be between {} and {}", file(), Key(key), number, low, high);
    }
    result.push_back(static_cast<int32_t>(number));
  }
  return result;
}

Status GgufFields::CheckEntries(std::string_view key, size_t entries, size_t layers) const {
  BATON_ASSIGN_OR_RETURN(const int64_t blocks, ReadInt("block_count"));
  if (std::cmp_equal(entries, blocks) && entries >= layers) return OkStatus();
  return InvalidArgument("{}: {} has {} entries for {} layers", file(), Key(key), entries, blocks);
}

}  // namespace baton
