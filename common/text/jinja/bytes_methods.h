#pragma once

#include <string>

#include "common/text/jinja/string_methods.h"

namespace baton::jinja {

// str.encode: utf-8, ascii or latin-1, with the error handlers strict, ignore and replace.
StatusOr<Value> EncodeText(Interpreter& interpreter, const Value& self, const Arguments& arguments);

// The methods of bytes, decode and hex. Null when there is no method `name`.
Method FindBytesMethod(const std::string& name);

}  // namespace baton::jinja
