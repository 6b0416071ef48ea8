// Command lines of the tools: a table of options and positional arguments, filled from argv and
// printed as help. Values are checked where they are read. Owns the table; writes into variables of
// the caller. One thread. (The server has a table of its own, with environment and settings file.)
//
//   Arguments arguments("bloomery bench", "Measures speed.");
//   arguments.Text({"-m", "--model"}, "FILE", "the model", &path).Required();
//   if (!arguments.Parse(argv)) return 0;  // help was asked for and printed
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace bloomery::apps {

class Arguments {
 public:
  using Names = std::vector<std::string_view>;

  Arguments(std::string program, std::string about);

  // The default shown in help is what `*out` holds when the option is added.
  Arguments& Text(Names names, std::string_view value_name, std::string_view help,
                  std::string* out);
  // May be given several times.
  Arguments& Texts(Names names, std::string_view value_name, std::string_view help,
                   std::vector<std::string>* out);
  // A whole number of [min, max].
  Arguments& Number(Names names, std::string_view value_name, std::string_view help, int64_t min,
                    int64_t max, int64_t* out);
  // Whole numbers joined by commas.
  Arguments& Numbers(Names names, std::string_view value_name, std::string_view help, int64_t min,
                     int64_t max, std::vector<int64_t>* out);
  // A number of [min, max].
  Arguments& Real(Names names, std::string_view value_name, std::string_view help, double min,
                  double max, double* out);
  // Takes no value: sets `*out` to `value`.
  Arguments& Switch(Names names, std::string_view help, std::string value, std::string* out);
  Arguments& Positional(std::string_view value_name, std::string_view help, std::string* out);
  // Makes the option or argument added last one that must be given.
  Arguments& Required();

  // Throws Error(kUsage) naming the option. False when help was asked for; it is then printed.
  bool Parse(const std::vector<std::string>& argv) const;
  std::string Help() const;

 private:
  struct Option {
    Names names;  // empty: positional
    std::string value_name;
    std::string help;
    std::function<void(std::string_view name, const std::string& value)> set;
    bool required = false;
    bool takes_value = true;
  };

  Arguments& Add(Names names, std::string_view value_name, std::string help,
                 std::function<void(std::string_view, const std::string&)> set);
  const Option* Find(std::string_view name) const;

  std::string program_;
  std::string about_;
  std::vector<Option> options_;
};

}  // namespace bloomery::apps
