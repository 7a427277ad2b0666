#include "common/base/json.h"

#include <algorithm>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <absl/container/flat_hash_map.h>
#include <absl/strings/cord.h>
#include <nlohmann/json.hpp>

#include "common/base/shortened.h"

namespace baton {
namespace {

constexpr const char* kTooDeep = "baton/too-deep-member";

// An object with fewer keys is searched linearly, which is faster than a hash table.
constexpr size_t kFewKeys = 16;

// The line and column, both counted from 1, of the byte before `position`.
std::string PlaceOf(std::string_view text, size_t position) {
  const std::string_view before = text.substr(0, position > 0 ? position - 1 : 0);
  const size_t line_start = before.rfind('\n') + 1;  // npos + 1 is 0
  return fmt::format("line {}, column {}",
                     1 + std::count(before.begin(), before.end(), '\n'),
                     1 + before.size() - line_start);
}

// The reason in the library's message, without its error number, position and "last read" text.
std::string ReasonOf(std::string_view message) {
  for (const std::string_view mark : {"] ", "parse error", ": "}) {
    const size_t at = message.find(mark);
    if (at != std::string_view::npos) message.remove_prefix(at + mark.size());
  }
  const size_t read = message.find("; last read: ");
  if (read != std::string_view::npos) message = message.substr(0, read);
  return Shortened(message, 160);
}

// Receives the parser's events and builds the value. Used for one text.
template <class Json>
class TreeBuilder final {
 public:
  TreeBuilder(std::string_view what, std::string_view text) : what_(what), text_(text) {}

  bool null() { return Add(Json(nullptr)); }
  bool boolean(bool value) { return Add(Json(value)); }
  bool number_integer(int64_t value) { return Add(Json(value)); }
  bool number_unsigned(uint64_t value) { return Add(Json(value)); }
  bool number_float(double value, const std::string&) { return Add(Json(value)); }
  bool string(std::string& value) { return Add(Json(std::move(value))); }
  bool binary(typename Json::binary_t&) { return false; }  // never called for JSON text
  bool start_object(size_t) { return Start(/*is_array=*/false); }
  bool start_array(size_t) { return Start(/*is_array=*/true); }
  bool key(std::string& key) {
    open_.back().key = std::move(key);
    return true;
  }
  bool end_array() {
    typename Json::array_t items = std::move(open_.back().items);
    open_.pop_back();
    return Add(Json(std::move(items)));
  }
  bool end_object() {
    typename Json::object_t object = MakeObject(std::move(open_.back().members));
    open_.pop_back();
    return Add(Json(std::move(object)));
  }
  bool parse_error(size_t position, const std::string&, const std::exception& error) {
    status_ = JsonSyntaxError(what_, text_, position, error);
    return false;
  }

  StatusOr<Json> Take() {
    if (!status_.ok()) return status_;
    return std::move(root_);
  }

 private:
  static constexpr bool kOrdered = std::is_same_v<Json, nlohmann::ordered_json>;
  using Members = std::vector<std::pair<std::string, Json>>;

  // An array or object whose closing bracket has not been read yet.
  struct Open {
    bool is_array = false;
    typename Json::array_t items;
    Members members;
    absl::flat_hash_map<std::string, size_t> places;  // key → index in `members`, if many
    std::string key;                                  // of the member that is being read
  };

  bool Start(bool is_array) {
    if (open_.size() == kMaxJsonDepth) {
      const std::string path = Path();
      status_ = InvalidArgument("{}{}{} is nested more than {} levels deep; at most {} are allowed",
                                what_,
                                path.empty() ? "" : ": ",
                                path,
                                kMaxJsonDepth,
                                kMaxJsonDepth);
      status_.SetPayload(kTooDeep, absl::Cord(path));
      return false;
    }
    open_.emplace_back();
    open_.back().is_array = is_array;
    return true;
  }

  bool Add(Json value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return true;
    }
    Open& top = open_.back();
    if (top.is_array) {
      top.items.push_back(std::move(value));
    } else if (Json* same = kOrdered ? FindMember(top) : nullptr; same != nullptr) {
      *same = std::move(value);
    } else {
      top.members.emplace_back(std::move(top.key), std::move(value));
    }
    return true;
  }

  // The value that `object` already has for the key that was read last; null when it has none.
  static Json* FindMember(Open& object) {
    Members& members = object.members;
    if (members.size() < kFewKeys) {
      const auto it = std::find_if(members.begin(), members.end(), [&object](const auto& member) {
        return member.first == object.key;
      });
      return it == members.end() ? nullptr : &it->second;
    }
    for (size_t i = object.places.size(); i < members.size(); ++i) {
      object.places.emplace(members[i].first, i);
    }
    const auto it = object.places.find(object.key);
    return it == object.places.end() ? nullptr : &members[it->second].second;
  }

  static typename Json::object_t MakeObject(Members members) {
    typename Json::object_t object;
    if constexpr (kOrdered) {
      // The library's own insertion compares each new key with all existing keys.
      auto& list = static_cast<typename Json::object_t::Container&>(object);
      list.reserve(members.size());
      for (auto& [key, value] : members) list.emplace_back(std::move(key), std::move(value));
    } else {
      for (auto& [key, value] : members) {
        object.insert_or_assign(std::move(key), std::move(value));
      }
    }
    return object;
  }

  // The path of the innermost named member that is being read, such as messages[0].tool_calls.
  std::string Path() const {
    constexpr size_t kMaxParts = 6;
    size_t end = 0;
    for (size_t i = 0; i < open_.size() && i < kMaxParts; ++i) {
      if (!open_[i].is_array) end = i + 1;
    }
    std::string path;
    for (size_t i = 0; i < end; ++i) {
      if (open_[i].is_array) {
        path += fmt::format("[{}]", open_[i].items.size());
      } else {
        path.append(path.empty() ? "" : ".").append(Shortened(open_[i].key, 64));
      }
    }
    return path;
  }

  std::string_view what_;
  std::string_view text_;
  std::vector<Open> open_;
  Json root_;
  Status status_;
};

template <class Json>
StatusOr<Json> Parse(std::string_view what, std::string_view text) {
  TreeBuilder<Json> builder(what, text);
  Json::sax_parse(text, &builder);
  return builder.Take();
}

}  // namespace

StatusOr<nlohmann::json> ParseJson(std::string_view what, std::string_view text) {
  return Parse<nlohmann::json>(what, text);
}

StatusOr<nlohmann::ordered_json> ParseOrderedJson(std::string_view what, std::string_view text) {
  return Parse<nlohmann::ordered_json>(what, text);
}

std::string TooDeepMember(const Status& status) {
  const auto path = status.GetPayload(kTooDeep);
  return path.has_value() ? std::string(*path) : std::string();
}

Status JsonSyntaxError(std::string_view what,
                       std::string_view text,
                       size_t position,
                       const std::exception& error) {
  return InvalidArgument("{} is not valid JSON in UTF-8: {}: {}",
                         what,
                         PlaceOf(text, position),
                         ReasonOf(error.what()));
}

}  // namespace baton
