// Internal: the tables of filters, tests, methods and global functions.
#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include "runtime/text/jinja/ast.h"
#include "runtime/text/jinja/callable.h"
#include "runtime/text/jinja/value.h"

namespace bloomery::jinja {

// Null when there is none of that name.
FilterFunction FindFilter(std::string_view name);
TestFunction FindTest(std::string_view name);

// A global of that name (range, dict, namespace, …), or undefined.
Value FindGlobal(std::string_view name);

// A bound method of a string, list or dict, or undefined when there is none or it would change the
// object (Hugging Face's sandbox hides those).
Value FindMethod(Evaluator& evaluator, const Value& object, std::string_view name);

// value.name as jinja2's getattr: methods and attributes first, then items.
Value AttributeOf(Evaluator& evaluator, const Value& value, const std::string& name);
// value[key] as jinja2's getitem: items first, then attributes.
Value ItemOf(Evaluator& evaluator, const Value& value, const Value& key);

// Parts shared between filters and methods.
enum class CaseChange { kUpper, kLower, kCapitalize, kTitle, kSwap };
Text ChangeCase(const Heap& heap, const Text& text, CaseChange change);
// Whether some letter has a case and none has the other one or title case: str.isupper with `other`
// IsLower, str.islower with IsUpper.
bool HasCaseWithout(const Heap& heap, const Text& text, bool (*other)(char32_t));
// Which ends to strip; `chars` null: white space.
Text Strip(const Heap& heap, const Text& text, const Text* chars, bool left, bool right);
// count < 0: all.
Text ReplaceText(const Heap& heap, const Text& text, const Text& from, const Text& to,
                 int64_t count);
// str.splitlines
std::vector<Text> SplitLines(const Heap& heap, const Text& text, bool keep_ends);
Text JoinTexts(const Heap& heap, const Text& separator, const std::vector<Value>& items,
               bool strict);

}  // namespace bloomery::jinja
