// What a plugin's author compares with another implementation: the logits of a few tokens, and
// values that the graph exports, as JSON.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "runtime/apps/check_plugin/check.h"

namespace bloomery::apps::check {

struct TokenRun {
  std::vector<int32_t> tokens;       // a prompt, from position 0
  std::vector<std::string> observe;  // names of exports: "layer.0.in"
  int32_t guesses = 0;               // of the model's own draft head, behind each token
};

// Runs the tokens one by one on the CPU, with caches in F32, and writes one JSON object: the logits
// of each token, and each observation of each token. Infinities and NaN are null there, and the
// row's "not_finite" then lists the values that have some. With guesses each row has a "draft":
// what the head holds likeliest behind the token and the tokens before it, then behind that guess,
// and so on, each with its probability. Throws Error(kUsage) for a token outside the vocabulary,
// and as loading a seat does.
void WriteTokenRun(const Subject& subject, const TokenRun& run, std::ostream& out);

}  // namespace bloomery::apps::check
