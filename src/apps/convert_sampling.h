// How a model's answers are sampled unless asked otherwise goes along when it is converted.
#pragma once
#include <filesystem>

#include "io/gguf_write.h"
#include "io/model_path.h"

namespace braid::apps {

// As general.sampling.* of a GGUF file.
void add_sampling(const io::ModelPath& model, io::GgufFields& fields);
// As words of a generation_config.json that there is.
void add_sampling(const io::ModelPath& model, const std::filesystem::path& generation_config);

}  // namespace braid::apps
