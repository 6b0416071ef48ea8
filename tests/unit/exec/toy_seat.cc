#include "tests/unit/exec/toy_seat.h"

#include <cmath>

#include "runtime/exec/lower/lower.h"
#include "runtime/graph/builder.h"
#include "runtime/model/gguf.h"
#include "tests/support/gguf_writer.h"

namespace bloomery::test {

float ToySeat::Wave(size_t i) { return std::sin(static_cast<float>(i) * 0.37F); }

ToySeat::ToySeat() {
  description.vocabulary = kVocabulary;
  description.layers = 4;
  table = Add("table", {kWidth, kVocabulary});
}

sdk::Weight ToySeat::Add(const std::string& name, std::vector<uint64_t> ne, model::TensorType type,
                         const std::function<float(size_t)>& value) {
  size_t count = 1;
  for (const uint64_t n : ne) count *= n;
  std::string bytes;
  std::vector<float> values;
  if (type == model::TensorType::kF32) {
    for (size_t i = 0; i < count; ++i) {
      values.push_back(value(i));
      bytes += GgufWriter::Encode(values.back());
    }
  } else {
    bytes.resize(count / model::Info(type).block_values * model::Info(type).block_bytes, '\0');
  }
  plugin::Weight weight;
  weight.name = name;
  weight.present = true;
  weight.tensor = tensors_.size();
  weight.bytes = bytes.size();
  weight.type = type;
  weight.n_dims = static_cast<uint32_t>(ne.size());
  for (size_t axis = 0; axis < ne.size(); ++axis) weight.ne[axis] = ne[axis];
  description.weights.push_back(weight);
  tensors_.push_back({name, std::move(ne), type, std::move(bytes)});
  values_.push_back(std::move(values));
  return {static_cast<uint32_t>(description.weights.size() - 1)};
}

sdk::Bank ToySeat::AddBank(uint32_t experts, uint32_t used, uint64_t ff, model::TensorType gate,
                           model::TensorType up, model::TensorType down) {
  const std::string number = std::to_string(description.banks.size());
  plugin::Bank bank;
  bank.experts = experts;
  bank.used = used;
  bank.width = kWidth;
  bank.ff = ff;
  bank.gate = Add("gate." + number, {kWidth, ff, experts}, gate).index;
  bank.up = Add("up." + number, {kWidth, ff, experts}, up).index;
  bank.down = Add("down." + number, {ff, kWidth, experts}, down).index;
  description.banks.push_back(bank);
  return {static_cast<int32_t>(description.banks.size() - 1)};
}

sdk::Plane ToySeat::AddPlane(const std::string& name, uint64_t width, bl_dtype type) {
  plugin::Plane plane;
  plane.name = name;
  plane.width = width;
  plane.type = type;
  description.planes.push_back(plane);
  return {static_cast<uint32_t>(description.planes.size() - 1)};
}

void ToySeat::MakeModel() {
  GgufWriter writer;
  writer.Add("general.architecture", "toy");
  for (const Tensor& tensor : tensors_) {
    writer.AddTensor(tensor.name, tensor.ne, static_cast<uint32_t>(tensor.type), tensor.bytes);
  }
  files_.Put("toy.gguf", writer.Bytes());
  model_ = std::make_unique<model::ModelFile>(model::OpenGguf(files_, "toy.gguf"));
}

graph::Graph ToySeat::MakeGraph(int32_t rows, const Build& build) {
  operators_ = std::make_unique<exec::SeatOperators>("toy", description);
  info_ = exec::MakeSeatInfo(description);
  graph::GraphBuilder builder(operators != nullptr ? *operators : operators_->set(), info_,
                              {.rows = rows, .logit_rows = rows});
  sdk::Graph g(builder.abi());
  build(g);
  return builder.Take();
}

exec::LoweredGraph ToySeat::Lower(int32_t rows, const Build& build,
                                  std::vector<std::string> wanted) {
  return exec::Lower(
      MakeGraph(rows, build), description,
      {.rows = rows, .backend = &ops::FindBackend("auto"), .wanted = std::move(wanted)});
}

std::unique_ptr<exec::CpuSeat> ToySeat::Load(const Build& build, exec::SeatOptions options) {
  MakeModel();
  options.pin = false;
  if (options.threads == 0) options.threads = 2;
  const auto with = [](const Build& made) {
    return [&made](const bl_builder& builder, const bl_build&) {
      sdk::Graph g(&builder);
      try {
        made(g);
      } catch (const sdk::Failure& failure) {
        throw Error(ErrorKind::kInternal, failure.what());  // as an instance reports it
      }
    };
  };
  exec::SeatSource source = {.plugin = "toy", .description = &description, .build = with(build)};
  if (draft) source.build_draft = with(draft);
  return std::make_unique<exec::CpuSeat>(*model_, source, options);
}

}  // namespace bloomery::test
