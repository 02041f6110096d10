// The weights of a model: the tensors around the layers, and each layer's description.
#include "models/model.h"
#include "models/tensor_reader.h"

namespace weir {

Status Model::read_weights() {
  config_.vocab_size = tokenizer_.vocab_size();
  if (file_.tensors().empty()) {
    return fail(WEIR_ERR_FORMAT,
                "token_embd.weight: the file has a vocabulary and no weights at all; it can be opened "
                "for its vocabulary only (WEIR_MODEL_VOCAB_ONLY)");
  }
  TensorReader in(file_, weights_.layers.get_allocator().resource());
  WEIR_TRY(in.matrix("token_embd.weight", config_.vocab_size, config_.d_model, weights_.token_embd));
  WEIR_TRY(in.vector(config_.arch->output_norm, config_.d_model, weights_.output_norm));
  WEIR_TRY(in.matrix("output.weight", config_.vocab_size, config_.d_model, weights_.output, false));
  if (weights_.output.data == nullptr) weights_.output = weights_.token_embd;  // tied
  if (config_.logit_scale != 1.0f) {
    weights_.scaled_norm.assign(weights_.output_norm, weights_.output_norm + config_.d_model);
    for (float& weight : weights_.scaled_norm) weight *= config_.logit_scale;
    weights_.output_norm = weights_.scaled_norm.data();
  }
  for (const char* name : RopeTable::kTensors) in.skip(name);  // RopeTable::read took them
  // Each layer has more than one tensor, so a block_count that the file cannot hold is found before anything of its
  // size is allocated.
  if (config_.n_layers > file_.tensors().size()) {
    return fail(WEIR_ERR_FORMAT, "%s.block_count: %u layers, but the file has only %zu tensors", config_.arch->name,
                config_.n_layers, file_.tensors().size());
  }
  weights_.layers.resize(config_.n_layers);
  for (uint32_t i = 0; i < config_.n_layers; ++i) {
    in.set_layer(i);
    WEIR_TRY(describe_layer(in, config_, kinds_[i], i, weights_.layers[i]));
    if (kinds_[i].mixer == Mixer::kAttention) weights_.kv_layers.push_back(i);
  }
  WEIR_TRY(in.check_all_taken(config_.arch->name, config_.n_layers, config_.n_layers + config_.n_next_blocks, notes_));
  config_.traits = traits_of(config_, weights_.layers);
  return {};
}

}  // namespace weir
