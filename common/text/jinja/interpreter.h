#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

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
  std::chrono::system_clock::time_point now;  // the time of strftime_now(), in UTC
  std::function<bool()> cancelled;            // may be empty
};

// Adds the template's line to an error that does not have a line yet.
Status AtLine(const Status& status, int line);

// Runs one rendering of a parsed template, with Python's and Jinja's semantics. Steps, memory,
// output and recursion are bounded; ResourceExhausted names the limit that was reached. For one Run
// only. Not thread-safe.
class Interpreter final {
 public:
  explicit Interpreter(const InterpreterOptions& options)
      : options_(options), budget_(options.max_steps, options.max_memory, options.cancelled) {}
  ~Interpreter();

  // Renders `block` with the members of `context`, an object, as variables. Text from the context
  // is untrusted, except for top-level strings named *_token. Errors: InvalidArgument with the
  // line; ResourceExhausted; Cancelled.
  StatusOr<MarkedText> Run(const Block& block, const nlohmann::ordered_json& context);

  // For filters, tests, methods and functions.
  Budget& budget() { return budget_; }
  std::chrono::system_clock::time_point now() const { return options_.now; }
  // A different number at each call; the numbers repeat in every rendering with the same `now`.
  uint64_t NextRandom();
  Value NewString(MarkedText text) { return Value::String(std::move(text), &budget_); }
  Value NewString(std::string text, bool trusted) {
    return NewString(MarkedText(std::move(text), trusted));
  }
  StatusOr<Value> NewNamespace();
  Status SetAttribute(NamespaceObject& object, const std::string& name, Value value);
  StatusOr<Value> CallValue(const Value& callee, const Arguments& arguments);
  // The items of a list or tuple, the keys of a dict, the characters of a string; nothing
  // for undefined.
  StatusOr<std::vector<Value>> Iterate(const Value& value);
  // Jinja's getattr: methods and attributes first, then items; undefined when nothing is found.
  StatusOr<Value> Attribute(const Value& object, const std::string& name);
  // Jinja's getitem: items first, then attributes.
  StatusOr<Value> Item(const Value& object, const Value& key);

 private:
  enum class Flow : uint8_t { kNext, kBreak, kContinue };

  static constexpr int kMaxDepth = 500;  // nested statements, expressions and macro calls

  StatusOr<Flow> RunBlock(const Block& block);
  StatusOr<Flow> RunStatement(const Statement& statement);
  StatusOr<Flow> RunFor(const Statement& statement);
  // Runs `statement`'s loop over `sequence` in the current scope; `depth` counts from 1.
  StatusOr<Flow> RunLoop(const Statement& statement, const Value& sequence, int depth);
  // loop(sequence): the text that a recursive loop prints for further items.
  StatusOr<Value> CallLoop(const LoopObject& loop, const Arguments& arguments);
  StatusOr<Flow> RunScoped(const Block& block);
  Status RunWith(const Statement& statement, Flow& flow);
  Status RunSetBlock(const Statement& statement);
  Status RunCallBlock(const Statement& statement);
  Status RunFilterBlock(const Statement& statement);
  Status Assign(const Target& target, Value value);
  Status Print(const MarkedText& text);
  // Runs `block` or `run` in `scope` and returns the text that it prints.
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
  // All namespaces of the rendering. The destructor clears them, so that cycles are freed, too.
  std::vector<std::shared_ptr<NamespaceObject>> namespaces_;
  std::shared_ptr<Scope> globals_;
  std::shared_ptr<Scope> scope_;
  MarkedText* out_ = nullptr;
  size_t printed_ = 0;
  int depth_ = 0;
  uint64_t random_calls_ = 0;
  const Value* filter_input_ = nullptr;  // the text of the current filter or set block
};

}  // namespace baton::jinja
