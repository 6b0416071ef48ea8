// The words of --device: "auto", "none", "cpu", or the names of cards. Pure: whether there is such
// a card shows where it is opened.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace bloomery::exec {

// The indices of the cards that "CUDA0" or "CUDA2,CUDA0" names, in that order; spaces around a name
// do not count, and a card may come twice. Empty for "auto", "none" and "cpu". Throws Error(kUsage)
// for anything else.
std::vector<uint32_t> CardsNamed(std::string_view device);

// "CUDA2,CUDA0": what CardsNamed reads.
std::string NameOfCards(std::span<const uint32_t> cards);

}  // namespace bloomery::exec
