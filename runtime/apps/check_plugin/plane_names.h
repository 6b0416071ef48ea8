// Which plane a byte of a slot's state belongs to, in the words of a report. Functions without a
// state; any thread.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/plugin/description.h"

namespace bloomery::apps::check {

// Of bytes that hold `rows` rows of each append plane, plane after plane.
std::string PlaneOfRowsAt(const plugin::Description& description, uint64_t rows, uint64_t at);

// Of a checkpoint's bytes: the lane of each fixed plane, then the last rows of each ring.
std::string PlaneOfCheckpointAt(const plugin::Description& description, uint64_t at);

}  // namespace bloomery::apps::check
