// A model whose draft layers lie in a file of their own: both files as one
// model, as if the layers had come with it. Knows no architecture: the draft's file says how many
// layers there are, and brings the tensors that the model's lacks.
#pragma once

#include "runtime/model/inventory.h"

namespace bloomery::model {

// Tensors of both files, those of the model first; of a name that both have, the model's. Metadata
// is the model's, and of the architecture's own keys: the number of layers (block_count) and of
// draft layers (nextn_predict_layers) and longer arrays are the draft's. Throws Error(kBadModel)
// naming both files and the key that contradicts (another architecture, another value, an array
// that does not begin like the model's) or saying that the file brings no tensor.
ModelFile WithDraftFile(ModelFile model, const ModelFile& draft);

}  // namespace bloomery::model
