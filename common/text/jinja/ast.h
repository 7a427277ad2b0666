#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/text/jinja/value.h"

namespace baton::jinja {

struct Expression;
struct Statement;
using ExpressionPtr = std::unique_ptr<Expression>;
using Block = std::vector<std::unique_ptr<Statement>>;

// The arguments of a call, filter or test.
struct CallArguments {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  ExpressionPtr rest;        // *rest
  ExpressionPtr rest_named;  // **rest_named
};

struct Expression {
  enum class Kind : uint8_t {
    kLiteral,    // literal
    kVariable,   // name
    kList,       // operands
    kTuple,      // operands
    kDict,       // operands: key, value, key, value …
    kAttribute,  // operands[0] . name
    kItem,       // operands[0] [ operands[1] ]
    kSlice,      // operands[0] [ operands[1] : operands[2] : operands[3] ], null if left out
    kCall,       // operands[0] ( arguments )
    kFilter,     // operands[0] | name ( arguments ); operands[0] null: the text of a filter block
    kTest,       // operands[0] is name ( arguments )
    kUnary,      // name (- + not), operands[0]
    kBinary,     // operands[0] name operands[1]; `and` and `or` short-circuit
    kCompare,    // operands[0] comparisons[0] operands[1] comparisons[1] …
    kCondition   // operands[0] if operands[1] else operands[2] (null: undefined)
  };
  Kind kind = Kind::kLiteral;
  int line = 1;
  int depth = 1;  // levels of the tree that this node is the root of
  std::string name;
  Value literal;
  std::vector<ExpressionPtr> operands;
  std::vector<std::string> comparisons;
  CallArguments arguments;
};

// The target of the assignment in a `for` or `set`: a name, an attribute of a namespace, or a tuple
// of targets.
struct Target {
  std::string name;
  std::string attribute;
  std::vector<Target> parts;
};

struct Parameter {
  std::string name;
  ExpressionPtr fallback;  // null: undefined
};

struct Statement {
  enum class Kind : uint8_t {
    kText,         // text
    kPrint,        // value
    kIf,           // value, body, otherwise (an elif is an `if` in otherwise)
    kFor,          // target, value, condition (may be null), recursive, body, otherwise
    kSet,          // target, value
    kSetBlock,     // target, value (a filter chain, may be null), body
    kMacro,        // target (its name), parameters, body
    kCallBlock,    // value (the call), parameters of the caller, body
    kFilterBlock,  // value (a filter chain), body
    kWith,         // assignments, body
    kGeneration,   // body
    kBreak,
    kContinue
  };
  Kind kind = Kind::kText;
  int line = 1;
  Value text;
  Target target;
  ExpressionPtr value;
  ExpressionPtr condition;
  bool recursive = false;
  Block body;
  Block otherwise;
  std::vector<Parameter> parameters;
  std::vector<std::pair<Target, ExpressionPtr>> assignments;
};

}  // namespace baton::jinja
