// Small languages, compared with predicates written by hand over all short strings: what is
// complete, what can still become complete, and what every token may do at each place.
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "tests/unit/text/grammar/grammar_test_support.h"

namespace bloomery::text {
namespace {

struct Language {
  std::string name;
  std::string gbnf;
  std::string alphabet;
  size_t length;  // of the strings that are looked at
  std::function<bool(const std::string&)> holds;
};

bool Balanced(const std::string& text) {
  int depth = 0;
  for (const char c : text) {
    depth += c == '(' ? 1 : -1;
    if (depth < 0) return false;
  }
  return depth == 0;
}

bool OnlyOf(const std::string& text, std::string_view letters) {
  return text.find_first_not_of(letters) == std::string::npos;
}

// The number of a's, then b's, then nothing else.
bool EqualRuns(const std::string& text) {
  const size_t half = text.size() / 2;
  return text == std::string(half, 'a') + std::string(half, 'b');
}

bool Palindrome(const std::string& text) {
  return std::equal(text.begin(), text.end(), text.rbegin());
}

// Sums of products of the letter a, with parentheses.
bool Sum(const std::string& text) {
  size_t at = 0;
  std::function<bool()> sum, product, factor;
  factor = [&] {
    if (at < text.size() && text[at] == 'a') return ++at, true;
    if (at >= text.size() || text[at] != '(') return false;
    ++at;
    if (!sum() || at >= text.size() || text[at] != ')') return false;
    return ++at, true;
  };
  product = [&] {
    if (!factor()) return false;
    while (at < text.size() && text[at] == '*') {
      ++at;
      if (!factor()) return false;
    }
    return true;
  };
  sum = [&] {
    if (!product()) return false;
    while (at < text.size() && text[at] == '+') {
      ++at;
      if (!product()) return false;
    }
    return true;
  };
  return sum() && at == text.size();
}

std::vector<Language> Languages() {
  return {
      {"one literal", R"(root ::= "ab")", "abc", 4, [](auto& s) { return s == "ab"; }},
      {"nothing at all", R"(root ::= "")", "ab", 2, [](auto& s) { return s.empty(); }},
      {"a choice", R"(root ::= "a" | "ab" | "ba")", "abc", 4,
       [](auto& s) { return s == "a" || s == "ab" || s == "ba"; }},
      {"a star", R"(root ::= "ab"*)", "ab", 7,
       [](auto& s) {
         if (s.size() % 2 != 0) return false;
         for (size_t i = 0; i < s.size(); i += 2) {
           if (s.substr(i, 2) != "ab") return false;
         }
         return true;
       }},
      {"a plus of a class", "root ::= [b-c]+", "abcd", 5,
       [](auto& s) { return !s.empty() && OnlyOf(s, "bc"); }},
      {"exactly three", R"(root ::= "a"{3})", "ab", 5, [](auto& s) { return s == "aaa"; }},
      {"two to four", R"(root ::= ("a" | "b"){2,4})", "abc", 6,
       [](auto& s) { return s.size() >= 2 && s.size() <= 4 && OnlyOf(s, "ab"); }},
      {"two or more", R"(root ::= "a"{2,} "b"?)", "ab", 6,
       [](auto& s) {
         const size_t run = std::min(s.find('b'), s.size());
         return run >= 2 && (run == s.size() || run + 1 == s.size());
       }},
      {"none of a class", "root ::= [^ab]{2}", "abcd", 3,
       [](auto& s) { return s.size() == 2 && OnlyOf(s, "cd"); }},
      {"any character", R"(root ::= . "b" .*)", "ab", 5,
       [](auto& s) { return s.size() >= 2 && s[1] == 'b'; }},
      {"equal runs", R"(root ::= "a" root "b" | "")", "ab", 8, EqualRuns},
      {"parentheses", "root ::= (\"(\" root \")\")*", "()", 10, Balanced},
      {"palindromes, which no look ahead decides",
       R"(root ::= "a" root "a" | "b" root "b" | "a" | "b" | "")", "ab", 8, Palindrome},
      {"recursion at the end", R"(root ::= "a" root | "b")", "ab", 6,
       [](auto& s) {
         return !s.empty() && s.back() == 'b' && OnlyOf(s.substr(0, s.size() - 1), "a");
       }},
      {"rules that may be empty before others", "root ::= x y x\nx ::= \"a\"?\ny ::= x x \"b\"*",
       "ab", 6,
       [](auto& s) {
         // a{0,3} b* a? (with no b: up to four)
         const size_t first = std::min(s.find('b'), s.size());
         if (first == s.size()) return s.size() <= 4;
         const size_t last = s.rfind('b');
         return first <= 3 && last + 2 >= s.size() &&
                s.substr(first, last + 1 - first) == std::string(last + 1 - first, 'b');
       }},
      {"sums",
       "root ::= product (\"+\" product)*\nproduct ::= factor (\"*\" factor)*\n"
       "factor ::= \"a\" | \"(\" root \")\"",
       "a+*()", 7, Sum},
      {"a stack of two kinds, with every way to close",
       "root ::= \"a\" root \"b\" | \"a\" root \"c\" | \"\"", "abc", 8,
       [](auto& s) {
         const size_t half = s.size() / 2;
         return s.size() % 2 == 0 && OnlyOf(s.substr(0, half), "a") && OnlyOf(s.substr(half), "bc");
       }},
  };
}

class Brute : public GrammarFixture {
 protected:
  // All strings up to the language's length, shortest first.
  static std::vector<std::string> Strings(const Language& language, size_t length) {
    std::vector<std::string> all{""};
    for (size_t begin = 0, end = 1, n = 0; n < length; ++n) {
      for (size_t i = begin; i < end; ++i) {
        for (const char c : language.alphabet) all.push_back(all[i] + c);
      }
      begin = end;
      end = all.size();
    }
    return all;
  }

  // The beginnings of the language's strings that are a little longer than those looked at.
  static std::set<std::string> Beginnings(const Language& language) {
    std::set<std::string> out;
    for (const std::string& text : Strings(language, language.length)) {
      if (!language.holds(text)) continue;
      for (size_t n = 0; n <= text.size(); ++n) out.insert(text.substr(0, n));
    }
    return out;
  }
};

TEST_F(Brute, LanguagesHoldExactlyTheirStrings) {
  for (const Language& language : Languages()) {
    SCOPED_TRACE(language.name);
    for (const std::string& text : Strings(language, language.length)) {
      ASSERT_EQ(Matches(language.gbnf, text), language.holds(text)) << '"' << text << '"';
    }
  }
}

TEST_F(Brute, TextThatNoStringBeginsWithIsRefusedAtOnce) {
  for (const Language& language : Languages()) {
    SCOPED_TRACE(language.name);
    const std::set<std::string> beginnings = Beginnings(language);
    // Up to half the length every beginning of a string has a string that is short enough.
    for (const std::string& text : Strings(language, language.length / 2)) {
      GrammarState state = State(language.gbnf);
      ASSERT_EQ(state.AcceptText(text), beginnings.contains(text)) << '"' << text << '"';
    }
  }
}

TEST_F(Brute, MasksHoldExactlyTheTokensThatCanFollow) {
  for (const Language& language : Languages()) {
    SCOPED_TRACE(language.name);
    const std::set<std::string> beginnings = Beginnings(language);
    for (const std::string& text : Strings(language, language.length / 2)) {
      GrammarState state = State(language.gbnf);
      if (!state.AcceptText(text)) continue;
      const TokenMask mask = state.Mask();
      size_t allowed = 0;
      for (TokenId token = 0; tokenizer_.Contains(token); ++token) {
        const std::string longer = text + std::string(tokenizer_.Piece(token));
        const bool longer_is_judged =
            longer.size() <= language.length / 2 && OnlyOf(longer, language.alphabet);
        GrammarState by_text = State(language.gbnf);
        bool fits = !tokenizer_.Piece(token).empty() && by_text.AcceptText(longer);
        if (token == kEnd) fits = language.holds(text);
        if (longer_is_judged && !tokenizer_.Piece(token).empty()) {
          EXPECT_EQ(fits, beginnings.contains(longer)) << longer;
        }
        ASSERT_EQ(mask.Holds(token), fits) << '"' << text << "\" then token " << token;
        GrammarState copy = state;
        ASSERT_EQ(copy.Allows(token), fits);
        ASSERT_EQ(copy.Accept(token), fits);
        allowed += fits ? 1 : 0;
      }
      ASSERT_EQ(mask.allowed, allowed);
    }
  }
}

}  // namespace
}  // namespace bloomery::text
