// Metadata of GGUF files that would change what a model computes: read, or refused in one line.
#include <gtest/gtest.h>

#include <limits>

#include "io/gguf.h"
#include "io/gguf_write.h"
#include "models/gguf.h"
#include "support/models.h"

namespace braid::models {
namespace {

class GgufConfig : public support::FolderTest {
 protected:
  // The config of a Llama with more metadata.
  Config read_with(const io::GgufFields& more) const {
    io::GgufFields fields = {{"general.architecture", std::string("llama")},
                             {"llama.block_count", 2u},
                             {"llama.context_length", 64u},
                             {"llama.embedding_length", 32u},
                             {"llama.feed_forward_length", 48u},
                             {"llama.attention.head_count", 2u},
                             {"llama.attention.key_length", 16u},
                             {"llama.vocab_size", 50u}};
    fields.insert(fields.end(), more.begin(), more.end());
    const auto path = folder_ / "x.gguf";
    std::filesystem::remove(path);
    io::GgufWriter(path, fields, {}).finish();
    return read_config(gguf_config(io::Gguf(path)));
  }
  std::string refusal_with(const io::GgufFields& more) const {
    return error_of([&] { read_with(more); });
  }
};

TEST_F(GgufConfig, APartOfEachHeadIsRotated) {
  EXPECT_EQ(read_with({}).rope->dim, 16);
  EXPECT_EQ(read_with({{"llama.rope.dimension_count", 8u}}).rope->dim, 8);
}

TEST_F(GgufConfig, WindowsAndScalesAreRefused) {
  EXPECT_EQ(refusal_with({{"llama.attention.sliding_window", 0u}}), "");
  EXPECT_NE(refusal_with({{"llama.attention.sliding_window", 4096u}})
                .find("llama.attention.sliding_window is not supported; got 4096; expected 0 or none"),
            std::string::npos);
  EXPECT_NE(refusal_with({{"llama.attention.scale", 0.25f}}).find("attention.scale is not supported"),
            std::string::npos);
}

TEST_F(GgufConfig, NumbersAreFinite) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    for (const char* key : {"llama.attention.layer_norm_rms_epsilon", "llama.rope.freq_base"}) {
      const std::string text = refusal_with({{key, bad}});
      EXPECT_NE(text.find(std::string(key) + " is not finite; got"), std::string::npos) << text;
    }
  }
}

}  // namespace
}  // namespace braid::models
