// The words of --place and of the flags beside it, for every program that loads a seat: what the
// planner is asked for (memory/wishes.h).
#pragma once

#include "runtime/memory/wishes.h"

namespace bloomery::exec {

using memory::kPlaceChoices;
using memory::NameOf;
using memory::ParseTensorRules;
using memory::Place;
using memory::PlacementRequest;
using memory::PlaceOf;
using memory::TensorRule;

}  // namespace bloomery::exec
