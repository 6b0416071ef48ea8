// The C++ layer over the plugin ABI, whole: header-only, standard library only, everything in
// namespace bloomery::sdk. A plugin is one class (plugin.hpp) that reads a model (model.hpp),
// describes a seat (seat.hpp), builds its graphs (graph.hpp) and may bring kernels (kernel.hpp).
// The C headers are the reference for what each field means.
#pragma once

#include <bloomery/bloomery.h>

#include <bloomery/abi.hpp>
#include <bloomery/attrs.hpp>
#include <bloomery/errors.hpp>
#include <bloomery/graph.hpp>
#include <bloomery/kernel.hpp>
#include <bloomery/model.hpp>
#include <bloomery/plugin.hpp>
#include <bloomery/seat.hpp>
