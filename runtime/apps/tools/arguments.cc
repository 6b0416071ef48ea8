#include "runtime/apps/tools/arguments.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iostream>
#include <set>
#include <sstream>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/utf8.h"

namespace bloomery::apps {
namespace {

template <typename T>
std::string Shown(T value) {
  std::ostringstream out;
  out << value;
  return out.str();
}

template <typename T>
T ParseValue(std::string_view name, std::string_view text, T min, T max) {
  T value{};
  const char* begin = text.data();
  const char* end = begin + text.size();
  const auto [next, error] = std::from_chars(begin, end, value);
  // Written so that a NaN is refused too.
  if (error != std::errc() || next != end || !(value >= min && value <= max)) {
    throw Error(ErrorKind::kUsage, std::string(name) + " " + Printable(text) +
                                       ": must be a number from " + Shown(min) + " to " +
                                       Shown(max));
  }
  return value;
}

std::string Join(const std::vector<int64_t>& values) {
  std::string text;
  for (const int64_t value : values) text += (text.empty() ? "" : ",") + std::to_string(value);
  return text;
}

std::string WithDefault(std::string_view help, const std::string& value) {
  return std::string(help) + (value.empty() ? "" : " (" + value + ")");
}

}  // namespace

Arguments::Arguments(std::string program, std::string about)
    : program_(std::move(program)), about_(std::move(about)) {}

Arguments& Arguments::Add(Names names, std::string_view value_name, std::string help,
                          std::function<void(std::string_view, const std::string&)> set) {
  options_.push_back({std::move(names), std::string(value_name), std::move(help), std::move(set)});
  return *this;
}

Arguments& Arguments::Text(Names names, std::string_view value_name, std::string_view help,
                           std::string* out) {
  return Add(std::move(names), value_name, WithDefault(help, *out),
             [out](std::string_view, const std::string& value) { *out = value; });
}

Arguments& Arguments::Texts(Names names, std::string_view value_name, std::string_view help,
                            std::vector<std::string>* out) {
  return Add(std::move(names), value_name, std::string(help),
             [out](std::string_view, const std::string& value) { out->push_back(value); });
}

Arguments& Arguments::Number(Names names, std::string_view value_name, std::string_view help,
                             int64_t min, int64_t max, int64_t* out) {
  return Add(std::move(names), value_name, WithDefault(help, Shown(*out)),
             [=](std::string_view name, const std::string& value) {
               *out = ParseValue<int64_t>(name, value, min, max);
             });
}

Arguments& Arguments::Numbers(Names names, std::string_view value_name, std::string_view help,
                              int64_t min, int64_t max, std::vector<int64_t>* out) {
  return Add(std::move(names), value_name, WithDefault(help, Join(*out)),
             [=](std::string_view name, const std::string& value) {
               out->clear();
               std::string_view rest = value;
               while (true) {
                 const size_t comma = std::min(rest.find(','), rest.size());
                 out->push_back(ParseValue<int64_t>(name, rest.substr(0, comma), min, max));
                 if (comma == rest.size()) return;
                 rest.remove_prefix(comma + 1);
               }
             });
}

Arguments& Arguments::Real(Names names, std::string_view value_name, std::string_view help,
                           double min, double max, double* out) {
  return Add(std::move(names), value_name, WithDefault(help, Shown(*out)),
             [=](std::string_view name, const std::string& value) {
               *out = ParseValue<double>(name, value, min, max);
             });
}

Arguments& Arguments::Switch(Names names, std::string_view help, std::string value,
                             std::string* out) {
  Add(std::move(names), "", std::string(help),
      [out, value = std::move(value)](std::string_view, const std::string&) { *out = value; });
  options_.back().takes_value = false;
  return *this;
}

Arguments& Arguments::Positional(std::string_view value_name, std::string_view help,
                                 std::string* out) {
  return Add({}, value_name, std::string(help),
             [out](std::string_view, const std::string& value) { *out = value; });
}

Arguments& Arguments::Required() {
  options_.back().required = true;
  return *this;
}

const Arguments::Option* Arguments::Find(std::string_view name) const {
  const auto found = std::ranges::find_if(options_, [&](const Option& option) {
    return std::ranges::find(option.names, name) != option.names.end();
  });
  return found == options_.end() ? nullptr : &*found;
}

bool Arguments::Parse(const std::vector<std::string>& argv) const {
  std::set<const Option*> given;
  auto next_positional = options_.begin();
  for (size_t i = 0; i < argv.size(); ++i) {
    const std::string& word = argv[i];
    if (word == "-h" || word == "--help") {
      std::cout << Help();
      return false;
    }
    if (word.size() > 1 && word.front() == '-') {
      const Option* option = Find(word);
      if (option == nullptr) {
        throw Error(ErrorKind::kUsage,
                    "unknown option '" + Printable(word) + "'; --help lists the known ones");
      }
      given.insert(option);
      if (!option->takes_value) {
        option->set(word, "");
        continue;
      }
      if (i + 1 == argv.size()) throw Error(ErrorKind::kUsage, word + ": a value is missing");
      option->set(word, argv[++i]);
      continue;
    }
    next_positional = std::find_if(next_positional, options_.end(),
                                   [](const Option& option) { return option.names.empty(); });
    if (next_positional == options_.end()) {
      throw Error(ErrorKind::kUsage, "'" + Printable(word) + "': one argument too many");
    }
    next_positional->set(next_positional->value_name, word);
    given.insert(&*next_positional++);
  }
  for (const Option& option : options_) {
    if (option.required && !given.contains(&option)) {
      throw Error(ErrorKind::kUsage,
                  (option.names.empty() ? option.value_name : std::string(option.names.front())) +
                      ": must be given; --help says what it is");
    }
  }
  return true;
}

std::string Arguments::Help() const {
  std::string usage = "Usage: " + program_ + " [options]";
  std::string list;
  for (const Option& option : options_) {
    std::string left;
    if (option.names.empty()) {
      left = option.value_name;
      usage += option.required ? " " + left : " [" + left + "]";
    } else {
      for (const std::string_view name : option.names) {
        left += (left.empty() ? "" : ", ") + std::string(name);
      }
      if (option.takes_value) left += " " + option.value_name;
    }
    constexpr size_t kHelpColumn = 28;
    left.resize(std::max(kHelpColumn, left.size() + 2), ' ');
    list += "  " + left + option.help + (option.required ? " [required]" : "") + "\n";
  }
  return usage + "\n\n" + about_ + "\n\n" + list;
}

}  // namespace bloomery::apps
