#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "common/base/status.h"
#include "common/text/jinja/ast.h"
#include "common/text/jinja/budget.h"
#include "common/text/jinja/marked_text.h"
#include "common/text/jinja/scope.h"

namespace baton::jinja {

struct InterpreterOptions {
  uint64_t max_steps = 0;
  size_t max_memory = 0;
  size_t max_output = 0;
  std::chrono::system_clock::time_point now;  // what strftime_now() shows, in UTC
  std::function<bool()> cancelled;            // may be empty
};

// Runs one rendering of a parsed template, with Python's and Jinja's semantics. Bounded in steps,
// memory, output and recursion: ResourceExhausted says which. Made for one Run; not thread-safe.
class Interpreter final {
 public:
  explicit Interpreter(const InterpreterOptions& options)
      : options_(options), budget_(options.max_steps, options.max_memory, options.cancelled) {}
  ~Interpreter();

  // The text of `block` with the members of `context`, an object, as variables. Text from the
  // context counts as untrusted, but for top-level strings named *_token. Errors: InvalidArgument
  // with the line.
  StatusOr<MarkedText> Run(const Block& block, const nlohmann::ordered_json& context);

  // For filters, tests, methods and functions.
  Budget& budget() { return budget_; }
  std::chrono::system_clock::time_point now() const { return options_.now; }
  // Differs from call to call; the same in each rendering at the same `now`.
  uint64_t NextRandom();
  Value NewString(MarkedText text) { return Value::String(std::move(text), &budget_); }
  Value NewString(std::string text, bool trusted) {
    return NewString(MarkedText(std::move(text), trusted));
  }
  StatusOr<Value> NewNamespace();
  Status SetAttribute(NamespaceObject& object, const std::string& name, Value value);
  StatusOr<Value> CallValue(const Value& callee, const Arguments& arguments);
  // The items of a list, tuple, dict (its keys), string (its characters) or undefined (none).
  StatusOr<std::vector<Value>> Iterate(const Value& value);
  // Jinja's getattr: methods and attributes first, then items; undefined when there is neither.
  StatusOr<Value> Attribute(const Value& object, const std::string& name);
  // Jinja's getitem: items first, then attributes.
  StatusOr<Value> Item(const Value& object, const Value& key);

 private:
  enum class Flow : uint8_t { kNext, kBreak, kContinue };

  StatusOr<Flow> RunBlock(const Block& block);
  StatusOr<Flow> RunStatement(const Statement& statement);
  StatusOr<Flow> RunFor(const Statement& statement);
  // `statement`'s loop over `sequence`, in the scope that is current; `depth` counts from 1.
  StatusOr<Flow> RunLoop(const Statement& statement, const Value& sequence, int depth);
  // loop(sequence): what a recursive loop prints for further items.
  StatusOr<Value> CallLoop(const LoopObject& loop, const Arguments& arguments);
  StatusOr<Flow> RunScoped(const Block& block);
  Status RunWith(const Statement& statement, Flow& flow);
  Status RunSetBlock(const Statement& statement);
  Status RunCallBlock(const Statement& statement);
  Status RunFilterBlock(const Statement& statement);
  Status Assign(const Target& target, Value value);
  Status Print(const MarkedText& text);
  // What `block` prints, in a scope of its own over `parent`.
  StatusOr<MarkedText> Capture(const Block& block, std::shared_ptr<Scope> scope);
  StatusOr<MarkedText> Capture(const std::function<Status()>& run, std::shared_ptr<Scope> scope);
  Value MakeMacro(const std::string& name, const Statement& statement);
  StatusOr<Value> CallMacro(const std::string& name,
                            const Statement& statement,
                            std::shared_ptr<const Scope> around,
                            const Arguments& arguments);
  StatusOr<std::vector<Value>> LoopItems(const Statement& statement, const Value& sequence);

  StatusOr<Value> Evaluate(const Expression& node);
  StatusOr<Value> EvaluateKind(const Expression& node);
  StatusOr<std::vector<Value>> EvaluateAll(const std::vector<ExpressionPtr>& nodes);
  StatusOr<Value> EvaluateVariable(const Expression& node);
  StatusOr<Value> EvaluateDict(const Expression& node);
  StatusOr<Value> EvaluateSlice(const Expression& node);
  StatusOr<Value> EvaluateCall(const Expression& node);
  StatusOr<Value> EvaluateFilter(const Expression& node);
  StatusOr<Value> EvaluateTest(const Expression& node);
  StatusOr<Value> EvaluateUnary(const Expression& node);
  StatusOr<Value> EvaluateBinary(const Expression& node);
  StatusOr<Value> EvaluateCompare(const Expression& node);
  StatusOr<Value> EvaluateCondition(const Expression& node);
  StatusOr<Arguments> EvaluateArguments(const CallArguments& arguments);
  StatusOr<Value> LoopAttribute(const Value& loop, const std::string& name);

  const InterpreterOptions options_;
  Budget budget_;
  // Kept to the end, then emptied, so that what refers to itself is freed, too.
  std::vector<std::shared_ptr<NamespaceObject>> namespaces_;
  std::shared_ptr<Scope> globals_;
  std::shared_ptr<Scope> scope_;
  MarkedText* out_ = nullptr;
  size_t printed_ = 0;
  int depth_ = 0;
  uint64_t random_calls_ = 0;
  const Value* filter_input_ = nullptr;  // the text of the filter block being run
};

}  // namespace baton::jinja
