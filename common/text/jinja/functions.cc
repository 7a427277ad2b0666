#include "common/text/jinja/functions.h"

#include <chrono>
#include <ctime>
#include <memory>
#include <string>
#include <string_view>

#include "common/text/jinja/arguments.h"
#include "common/text/jinja/interpreter.h"
#include "common/text/jinja/objects.h"
#include "common/text/jinja/value_text.h"

namespace baton::jinja {
namespace {

constexpr int64_t kMaxRange = 100'000;  // items; the limit of Jinja's sandbox

StatusOr<Value> Range(Interpreter& interpreter, const Arguments& arguments) {
  BATON_ASSIGN_OR_RETURN(const auto bound,
                         BoundArguments::Bind("range", arguments, {"start", "stop", "step"}, 1));
  BATON_ASSIGN_OR_RETURN(int64_t start, bound.Int(0, 0));
  BATON_ASSIGN_OR_RETURN(int64_t stop, bound.Int(1, 0));
  BATON_ASSIGN_OR_RETURN(const int64_t step, bound.Int(2, 1));
  if (!bound.Has(1)) stop = std::exchange(start, 0);
  if (step == 0) return InvalidArgument("range() with a step of 0");
  std::vector<Value> items;
  for (int64_t i = start; step > 0 ? i < stop : i > stop;) {
    if (static_cast<int64_t>(items.size()) >= kMaxRange) {
      return MakeStatus(
          StatusCode::kResourceExhausted, "range() of more than {} numbers", kMaxRange);
    }
    items.push_back(Value::Int(i));
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  BATON_RETURN_IF_ERROR(interpreter.budget().Spend(items.size() / 8));
  return Value::List(std::move(items), interpreter.budget());
}

// The members for dict() and namespace(): those of the positional arguments (dicts or lists of
// pairs), then the named arguments.
StatusOr<std::vector<DictObject::Entry>> Members(Interpreter& interpreter,
                                                 const Arguments& arguments) {
  std::vector<DictObject::Entry> entries;
  for (const Value& value : arguments.positional) {
    if (value.is_dict()) {
      entries.insert(entries.end(), value.dict().entries.begin(), value.dict().entries.end());
      continue;
    }
    BATON_ASSIGN_OR_RETURN(const std::vector<Value> pairs, interpreter.Iterate(value));
    for (const Value& pair : pairs) {
      if (!pair.is_sequence() || pair.items().size() != 2) {
        return InvalidArgument("dict() needs pairs of key and value");
      }
      entries.emplace_back(pair.items()[0], pair.items()[1]);
    }
  }
  for (const auto& [name, value] : arguments.named) {
    entries.emplace_back(interpreter.NewString(name, true), value);
  }
  return entries;
}

StatusOr<Value> Dict(Interpreter& interpreter, const Arguments& arguments) {
  BATON_ASSIGN_OR_RETURN(auto entries, Members(interpreter, arguments));
  return DictObject::Make(std::move(entries), interpreter.budget());
}

StatusOr<Value> Namespace(Interpreter& interpreter, const Arguments& arguments) {
  BATON_ASSIGN_OR_RETURN(auto entries, Members(interpreter, arguments));
  BATON_ASSIGN_OR_RETURN(Value object, interpreter.NewNamespace());
  for (auto& [key, value] : entries) {
    if (!key.is_string()) return InvalidArgument("the attributes of a namespace need names");
    BATON_RETURN_IF_ERROR(interpreter.SetAttribute(object.ns(), key.str(), std::move(value)));
  }
  return object;
}

StatusOr<Value> RaiseException(Interpreter& interpreter, const Arguments& arguments) {
  BATON_ASSIGN_OR_RETURN(const auto bound,
                         BoundArguments::Bind("raise_exception", arguments, {"message"}, 1));
  BATON_ASSIGN_OR_RETURN(const MarkedText message, ToText(bound[0], interpreter.budget()));
  constexpr size_t kLongestMessage = 1000;
  return InvalidArgument("the chat template refuses the messages: {}",
                         message.text().substr(0, kLongestMessage));
}

// Replaces what C's strftime does not format as Python does: microseconds, and the zone, which is
// empty for a time without a zone.
std::string CFormat(std::string_view format, std::chrono::microseconds fraction) {
  std::string out;
  for (size_t i = 0; i < format.size(); ++i) {
    const char code = format[i] == '%' && i + 1 < format.size() ? format[i + 1] : '\0';
    if (code == 'f') {
      out += fmt::format("{:06}", fraction.count());
    } else if (code != 'Z' && code != 'z') {
      out += format.substr(i, code == '\0' ? 1 : 2);
    }
    i += code == '\0' ? 0 : 1;
  }
  return out;
}

StatusOr<Value> StrftimeNow(Interpreter& interpreter, const Arguments& arguments) {
  BATON_ASSIGN_OR_RETURN(const auto bound,
                         BoundArguments::Bind("strftime_now", arguments, {"format"}, 1));
  BATON_ASSIGN_OR_RETURN(const std::string python, bound.Text(0, ""));
  const auto whole = std::chrono::floor<std::chrono::seconds>(interpreter.now());
  const std::time_t seconds = std::chrono::system_clock::to_time_t(whole);
  const std::string format =
      CFormat(python, std::chrono::floor<std::chrono::microseconds>(interpreter.now() - whole));
  std::tm calendar{};
  gmtime_r(&seconds, &calendar);
  char text[512];
  // The result 0 means an empty text or one that does not fit; both become empty text.
  const size_t length = std::strftime(text, sizeof(text), format.c_str(), &calendar);
  return interpreter.NewString(std::string(text, length), bound[0].text().trusted());
}

StatusOr<Value> Joiner(Interpreter& interpreter, const Arguments& arguments) {
  BATON_ASSIGN_OR_RETURN(const auto bound, BoundArguments::Bind("joiner", arguments, {"sep"}));
  const Value separator = bound.Has(0) ? bound[0] : interpreter.NewString(", ", true);
  auto function = std::make_shared<FunctionObject>();
  function->name = "joiner";
  function->extent.Include(separator.extent());
  function->call = [separator, used = std::make_shared<bool>(false)](
                       Interpreter& self, const Arguments&) -> StatusOr<Value> {
    return std::exchange(*used, true) ? separator : self.NewString("", true);
  };
  return Value::Function(std::move(function));
}

}  // namespace

std::vector<std::pair<std::string, Value>> GlobalFunctions() {
  using Call = StatusOr<Value> (*)(Interpreter&, const Arguments&);
  const std::pair<const char*, Call> functions[] = {{"range", Range},
                                                    {"dict", Dict},
                                                    {"namespace", Namespace},
                                                    {"raise_exception", RaiseException},
                                                    {"strftime_now", StrftimeNow},
                                                    {"joiner", Joiner}};
  std::vector<std::pair<std::string, Value>> globals;
  for (const auto& [name, call] : functions) {
    auto function = std::make_shared<FunctionObject>();
    function->name = name;
    function->call = call;
    globals.emplace_back(name, Value::Function(std::move(function)));
  }
  return globals;
}

}  // namespace baton::jinja
