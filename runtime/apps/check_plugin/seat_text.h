// A bl_seat and the calls on a bl_builder as text, so that two of them can be compared and a
// difference shown.
#pragma once

#include <bloomery/plugin.h>

#include <string>

namespace bloomery::apps::check {

// Every field of every item, one item a line; function pointers as present or null.
std::string SeatText(const bl_seat& seat);

// The first line in which they differ, both versions; empty where they are equal.
std::string FirstDifference(const std::string& a, const std::string& b);

}  // namespace bloomery::apps::check
