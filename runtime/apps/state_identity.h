// What saved states of a served model belong to: the model's bytes, the numbers its kernels give,
// and the programs that compute them. Reads files, so it takes some tenths of a second where models
// are large; asked only where states go to files.
#pragma once

#include <string>
#include <vector>

#include "runtime/exec/seat.h"
#include "runtime/model/inventory.h"
#include "runtime/state/identity.h"

namespace bloomery::apps {

// Changes with the model: everything before the tensors (metadata, names, shapes) and, of models up
// to 256 MiB, every byte; of larger ones the first and the last 4 KiB of each tensor, the files'
// sizes and when they were last written. Throws Error(kNoInput).
std::string ModelDigest(const model::ModelFile& model);

// `programs`: the files of what computes, the server and the plugin. Throws Error(kNoInput).
state::Identity IdentityOf(const model::ModelFile& model, const exec::Seat& seat,
                           const std::vector<std::string>& programs);

}  // namespace bloomery::apps
