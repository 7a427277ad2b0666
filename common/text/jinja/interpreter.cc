#include "common/text/jinja/interpreter.h"

#include <span>
#include <utility>

#include <nlohmann/json.hpp>

#include "common/base/hash.h"
#include "common/text/jinja/arguments.h"
#include "common/text/jinja/functions.h"
#include "common/text/jinja/objects.h"
#include "common/text/jinja/value_json.h"
#include "common/text/jinja/value_text.h"

namespace baton::jinja {
namespace {

// Sets a variable during its lifetime and then restores the old value.
template <class T>
class Replaced final {
 public:
  Replaced(T& variable, T value)
      : variable_(variable), old_(std::exchange(variable, std::move(value))) {}
  ~Replaced() { variable_ = std::move(old_); }
  Replaced(const Replaced&) = delete;
  Replaced& operator=(const Replaced&) = delete;

 private:
  T& variable_;
  T old_;
};

}  // namespace

Status AtLine(const Status& status, int line) {
  if (status.ok() || Message(status).starts_with("template line ")) return status;
  return Annotate(status, fmt::format("template line {}", line));
}

Interpreter::~Interpreter() {
  for (const auto& object : namespaces_) object->attributes.clear();
}

StatusOr<MarkedText> Interpreter::Run(const Block& block, const nlohmann::ordered_json& context) {
  globals_ = std::make_shared<Scope>(nullptr);
  for (auto& [name, function] : GlobalFunctions()) globals_->Set(name, std::move(function));
  globals_ = std::make_shared<Scope>(std::move(globals_));
  if (!context.is_object()) return InvalidArgument("a template's input must be an object");
  for (const auto& [name, member] : context.items()) {
    const bool trusted = member.is_string() && std::string_view(name).ends_with("_token");
    auto value = FromJson(member, trusted, budget_);
    if (!value.ok()) return Annotate(value.status(), name);
    globals_->Set(name, *std::move(value));
  }
  MarkedText text;
  out_ = &text;
  scope_ = globals_;
  BATON_RETURN_IF_ERROR(RunBlock(block).status());
  return text;
}

Status Interpreter::Print(const MarkedText& text) {
  printed_ += text.size();
  if (printed_ > options_.max_output) {
    return MakeStatus(StatusCode::kResourceExhausted,
                      "the template prints more than the {} bytes it may",
                      options_.max_output);
  }
  BATON_RETURN_IF_ERROR(budget_.SpendOnBytes(text.size()));
  out_->Append(text);
  return budget_.CheckRoom(out_->memory());
}

StatusOr<Interpreter::Flow> Interpreter::RunBlock(const Block& block) {
  const Replaced deeper(depth_, depth_ + 1);
  if (depth_ > kMaxDepth) {
    return MakeStatus(
        StatusCode::kResourceExhausted, "the template recurses more than {} deep", kMaxDepth);
  }
  for (const auto& statement : block) {
    auto flow = budget_.Spend(1).ok() ? RunStatement(*statement) : budget_.Spend(1);
    if (!flow.ok()) return AtLine(flow.status(), statement->line);
    if (*flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

StatusOr<Interpreter::Flow> Interpreter::RunStatement(const Statement& statement) {
  Flow flow = Flow::kNext;
  switch (statement.kind) {
    case Statement::Kind::kText:
      BATON_RETURN_IF_ERROR(Print(statement.text.text()));
      break;
    case Statement::Kind::kPrint: {
      BATON_ASSIGN_OR_RETURN(const Value value, Evaluate(*statement.value));
      BATON_ASSIGN_OR_RETURN(const MarkedText text, ToText(value, budget_));
      BATON_RETURN_IF_ERROR(Print(text));
      break;
    }
    case Statement::Kind::kIf: {
      BATON_ASSIGN_OR_RETURN(const Value condition, Evaluate(*statement.value));
      return RunBlock(condition.Truthy() ? statement.body : statement.otherwise);
    }
    case Statement::Kind::kFor:
      return RunFor(statement);
    case Statement::Kind::kSet: {
      BATON_ASSIGN_OR_RETURN(Value value, Evaluate(*statement.value));
      BATON_RETURN_IF_ERROR(Assign(statement.target, std::move(value)));
      break;
    }
    case Statement::Kind::kSetBlock:
      BATON_RETURN_IF_ERROR(RunSetBlock(statement));
      break;
    case Statement::Kind::kMacro:
      scope_->Set(statement.target.name, MakeMacro(statement.target.name, statement));
      break;
    case Statement::Kind::kCallBlock:
      BATON_RETURN_IF_ERROR(RunCallBlock(statement));
      break;
    case Statement::Kind::kFilterBlock:
      BATON_RETURN_IF_ERROR(RunFilterBlock(statement));
      break;
    case Statement::Kind::kWith:
      BATON_RETURN_IF_ERROR(RunWith(statement, flow));
      break;
    case Statement::Kind::kGeneration:
      return RunScoped(statement.body);
    case Statement::Kind::kBreak:
      return Flow::kBreak;
    case Statement::Kind::kContinue:
      return Flow::kContinue;
  }
  return flow;
}

StatusOr<Interpreter::Flow> Interpreter::RunScoped(const Block& block) {
  const Replaced scope(scope_, std::make_shared<Scope>(scope_));
  return RunBlock(block);
}

Status Interpreter::RunWith(const Statement& statement, Flow& flow) {
  auto inner = std::make_shared<Scope>(scope_);
  for (const auto& [target, expression] : statement.assignments) {
    BATON_ASSIGN_OR_RETURN(Value value, Evaluate(*expression));
    inner->Set(target.name, std::move(value));
  }
  const Replaced scope(scope_, std::move(inner));
  BATON_ASSIGN_OR_RETURN(flow, RunBlock(statement.body));
  return OkStatus();
}

StatusOr<std::vector<Value>> Interpreter::LoopItems(const Statement& statement,
                                                    const Value& sequence) {
  BATON_ASSIGN_OR_RETURN(std::vector<Value> items, Iterate(sequence));
  if (statement.condition == nullptr) return items;
  std::vector<Value> kept;
  const Replaced scope(scope_, std::make_shared<Scope>(scope_));
  for (Value& item : items) {
    BATON_RETURN_IF_ERROR(Assign(statement.target, item));
    BATON_ASSIGN_OR_RETURN(const Value condition, Evaluate(*statement.condition));
    if (condition.Truthy()) kept.push_back(std::move(item));
  }
  return kept;
}

StatusOr<Interpreter::Flow> Interpreter::RunFor(const Statement& statement) {
  BATON_ASSIGN_OR_RETURN(const Value sequence, Evaluate(*statement.value));
  return RunLoop(statement, sequence, 1);
}

StatusOr<Interpreter::Flow> Interpreter::RunLoop(const Statement& statement,
                                                 const Value& sequence,
                                                 int depth) {
  BATON_ASSIGN_OR_RETURN(std::vector<Value> items, LoopItems(statement, sequence));
  if (items.empty()) return RunBlock(statement.otherwise);
  auto loop = std::make_shared<LoopObject>();
  loop->items = std::move(items);
  loop->extent = ExtentOf(loop->items);
  loop->depth = depth;
  const MemoryCharge charge(budget_, loop->items.size() * sizeof(Value));
  const std::shared_ptr<Scope> around = scope_;
  if (statement.recursive) {
    loop->recursive = &statement;
    loop->around = around;
  }
  for (; loop->index < loop->items.size(); ++loop->index) {
    BATON_RETURN_IF_ERROR(budget_.Spend(1));
    const Replaced scope(scope_, std::make_shared<Scope>(around));
    scope_->Set("loop", Value::Loop(loop));
    BATON_RETURN_IF_ERROR(Assign(statement.target, loop->items[loop->index]));
    BATON_ASSIGN_OR_RETURN(const Flow flow, RunBlock(statement.body));
    if (flow == Flow::kBreak) break;
  }
  return Flow::kNext;
}

StatusOr<Value> Interpreter::CallLoop(const LoopObject& loop, const Arguments& arguments) {
  if (loop.recursive == nullptr) {
    return InvalidArgument("the loop cannot be called: 'recursive' is missing from its 'for'");
  }
  BATON_ASSIGN_OR_RETURN(const auto bound,
                         BoundArguments::Bind("loop", arguments, {"iterable"}, 1));
  auto around = loop.around.lock();
  if (around == nullptr) return InvalidArgument("the loop that is called has ended");
  const Value& sequence = bound[0];
  const Statement& statement = *loop.recursive;
  const int depth = loop.depth + 1;
  const auto run = [&] { return RunLoop(statement, sequence, depth).status(); };
  BATON_ASSIGN_OR_RETURN(MarkedText text, Capture(run, std::move(around)));
  return NewString(std::move(text));
}

Status Interpreter::Assign(const Target& target, Value value) {
  if (!target.parts.empty()) {
    BATON_ASSIGN_OR_RETURN(std::vector<Value> items, Iterate(value));
    if (items.size() != target.parts.size()) {
      return InvalidArgument(
          "{} values cannot be unpacked to {} names", items.size(), target.parts.size());
    }
    for (size_t i = 0; i < items.size(); ++i) {
      BATON_RETURN_IF_ERROR(Assign(target.parts[i], std::move(items[i])));
    }
    return OkStatus();
  }
  if (target.attribute.empty()) {
    scope_->Set(target.name, std::move(value));
    return OkStatus();
  }
  const Value* object = scope_->Find(target.name);
  if (object == nullptr || !object->is_namespace()) {
    return InvalidArgument(
        "'{}' is not a namespace: its attribute '{}' cannot be set", target.name, target.attribute);
  }
  return SetAttribute(object->ns(), target.attribute, std::move(value));
}

StatusOr<MarkedText> Interpreter::Capture(const Block& block, std::shared_ptr<Scope> scope) {
  return Capture([&] { return RunBlock(block).status(); }, std::move(scope));
}

StatusOr<MarkedText> Interpreter::Capture(const std::function<Status()>& run,
                                          std::shared_ptr<Scope> scope) {
  MarkedText text;
  const size_t printed = printed_;
  {
    const Replaced inner(scope_, std::move(scope));
    const Replaced sink(out_, &text);
    BATON_RETURN_IF_ERROR(run());
  }
  printed_ = printed;  // captured text counts as output only when it is printed
  BATON_RETURN_IF_ERROR(budget_.CheckRoom(text.memory()));
  return text;
}

Status Interpreter::RunSetBlock(const Statement& statement) {
  BATON_ASSIGN_OR_RETURN(MarkedText text, Capture(statement.body, std::make_shared<Scope>(scope_)));
  Value value = NewString(std::move(text));
  if (statement.value != nullptr) {
    const Value input = value;
    const Replaced filtered(filter_input_, &input);
    BATON_ASSIGN_OR_RETURN(value, Evaluate(*statement.value));
  }
  return Assign(statement.target, std::move(value));
}

Status Interpreter::RunFilterBlock(const Statement& statement) {
  BATON_ASSIGN_OR_RETURN(MarkedText text, Capture(statement.body, std::make_shared<Scope>(scope_)));
  const Value input = NewString(std::move(text));
  const Replaced filtered(filter_input_, &input);
  BATON_ASSIGN_OR_RETURN(const Value value, Evaluate(*statement.value));
  BATON_ASSIGN_OR_RETURN(const MarkedText result, ToText(value, budget_));
  return Print(result);
}

Status Interpreter::RunCallBlock(const Statement& statement) {
  BATON_ASSIGN_OR_RETURN(const Value callee, Evaluate(*statement.value->operands[0]));
  BATON_ASSIGN_OR_RETURN(Arguments arguments, EvaluateArguments(statement.value->arguments));
  arguments.named.emplace_back("caller", MakeMacro("caller", statement));
  BATON_ASSIGN_OR_RETURN(const Value value, CallValue(callee, arguments));
  BATON_ASSIGN_OR_RETURN(const MarkedText text, ToText(value, budget_));
  return Print(text);
}

Value Interpreter::MakeMacro(const std::string& name, const Statement& statement) {
  // The pointer is weak, because the scope holds the macro. A macro that outlives its scope uses
  // the global scope.
  const std::weak_ptr<const Scope> around = scope_;
  auto macro = std::make_shared<FunctionObject>();
  macro->name = name;
  macro->call = [name, around, &statement](Interpreter& self, const Arguments& arguments) {
    return self.CallMacro(name, statement, around.lock(), arguments);
  };
  return Value::Function(std::move(macro));
}

StatusOr<Value> Interpreter::CallMacro(const std::string& name,
                                       const Statement& statement,
                                       std::shared_ptr<const Scope> around,
                                       const Arguments& arguments) {
  auto inner = std::make_shared<Scope>(around != nullptr ? std::move(around) : globals_);
  const std::vector<Parameter>& parameters = statement.parameters;
  if (arguments.positional.size() > parameters.size()) {
    return InvalidArgument("macro '{}' takes {} arguments, {} were given",
                           name,
                           parameters.size(),
                           arguments.positional.size());
  }
  for (const auto& [given, value] : arguments.named) {
    bool known = given == "caller";
    for (const Parameter& parameter : parameters) known = known || parameter.name == given;
    if (!known) return InvalidArgument("macro '{}' has no argument '{}'", name, given);
    inner->Set(given, value);
  }
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Parameter& parameter = parameters[i];
    bool named = false;
    for (const auto& argument : arguments.named) named = named || argument.first == parameter.name;
    if (i < arguments.positional.size()) {
      if (named) return InvalidArgument("macro '{}' got '{}' twice", name, parameter.name);
      inner->Set(parameter.name, arguments.positional[i]);
    } else if (!named && parameter.fallback != nullptr) {
      const Replaced scope(scope_, inner);
      BATON_ASSIGN_OR_RETURN(Value value, Evaluate(*parameter.fallback));
      inner->Set(parameter.name, std::move(value));
    } else if (!named) {
      inner->Set(parameter.name,
                 Value::Undefined(fmt::format("parameter '{}' was not provided", parameter.name)));
    }
  }
  BATON_ASSIGN_OR_RETURN(MarkedText text, Capture(statement.body, std::move(inner)));
  return NewString(std::move(text));
}

uint64_t Interpreter::NextRandom() {
  const uint64_t seed[] = {static_cast<uint64_t>(options_.now.time_since_epoch().count()),
                           random_calls_++};
  return Xxh3(std::as_bytes(std::span(seed)));
}

StatusOr<Value> Interpreter::NewNamespace() {
  auto object = std::make_shared<NamespaceObject>();
  constexpr size_t kBytes = 256;
  budget_.Charge(kBytes);
  BATON_RETURN_IF_ERROR(budget_.CheckRoom(0));
  namespaces_.push_back(object);
  return Value::Namespace(std::move(object));
}

Status Interpreter::SetAttribute(NamespaceObject& object, const std::string& name, Value value) {
  const auto [it, added] = object.attributes.try_emplace(name);
  if (added) budget_.Charge(name.size() + 2 * sizeof(Value));
  it->second = std::move(value);
  return budget_.CheckRoom(0);
}

}  // namespace baton::jinja
