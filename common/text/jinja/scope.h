#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/text/jinja/value.h"

namespace baton::jinja {

// The variables of one block. They hide the variables of the same name of the blocks around it.
class Scope final {
 public:
  explicit Scope(std::shared_ptr<const Scope> parent) : parent_(std::move(parent)) {}

  void Set(const std::string& name, Value value) {
    for (auto& [known, old] : variables_) {
      if (known == name) {
        old = std::move(value);
        return;
      }
    }
    variables_.emplace_back(name, std::move(value));
  }

  // The variable of this or the nearest outer block; null when no block has it.
  const Value* Find(const std::string& name) const {
    for (const Scope* scope = this; scope != nullptr; scope = scope->parent_.get()) {
      for (const auto& [known, value] : scope->variables_) {
        if (known == name) return &value;
      }
    }
    return nullptr;
  }

 private:
  std::shared_ptr<const Scope> parent_;
  std::vector<std::pair<std::string, Value>> variables_;  // few, so faster than a map
};

}  // namespace baton::jinja
