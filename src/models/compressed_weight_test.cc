// Matrices as compressed-tensors packs them, in forms that Braid does not write: their values by the definition.
#include "models/compressed_weight.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "codec/codec.h"
#include "io/safetensors_write.h"
#include "support/error_of.h"
#include "support/folder.h"

namespace braid::models {
namespace {

constexpr int64_t kRows = 5, kCols = 192;

class CompressedWeight : public support::FolderTest {
 protected:
  struct Part {
    io::TensorSpec spec;
    std::vector<std::byte> bytes;
  };
  // A part with elements that `next` gives.
  template <class Next>
  Part part(const char* word, DType type, const Shape& shape, Next next) {
    Part p{{std::string("a.weight") + word, type, shape}, {}};
    p.bytes.resize(static_cast<size_t>(p.spec.bytes()));
    const MutView view(p.bytes.data(), type, shape);
    for (int64_t i = 0; i < view.count(); ++i) set_element(view, i, next());
    return p;
  }
  Part bytes(const char* word, DType type, const Shape& shape) {
    Part p{{std::string("a.weight") + word, type, shape}, {}};
    for (int64_t i = 0; i < p.spec.bytes(); ++i) p.bytes.push_back(static_cast<std::byte>(draw_()));
    return p;
  }
  io::Safetensors file(const std::vector<Part>& parts) {
    std::vector<io::TensorSpec> specs;
    for (const Part& p : parts) specs.push_back(p.spec);
    const auto path = folder_ / "x.safetensors";
    io::SafetensorsWriter writer(path, specs);
    for (const io::TensorSpec& spec : writer.order()) {
      for (const Part& p : parts) {
        if (p.spec.name == spec.name) writer.write(spec.name, p.bytes);
      }
    }
    writer.finish();
    return io::Safetensors(path);
  }
  Weight read(const io::Safetensors& files) { return compressed_weight(store_, files, "x", "a.weight", kRows, kCols); }
  double signed_scale() { return std::normal_distribution<double>(0, 0.1)(draw_); }

  WeightStore store_;
  std::mt19937 draw_{11};
};

TEST_F(CompressedWeight, IntegersOfAnyGroupAndScale) {
  for (const int bits : {3, 4, 8}) {
    for (const DType type : {DType::bf16, DType::f16, DType::f32}) {
      for (const int64_t groups : {6, 3, 1}) {  // groups of 32, groups of 64, one scale per row
        const io::Safetensors files = file({bytes("_packed", DType::i32, {kRows, kCols * bits / 32}),
                                            part("_scale", type, {kRows, groups}, [&] { return signed_scale(); })});
        const Weight w = read(files);
        EXPECT_EQ(w.spec.format, type == DType::f32 ? Format::f32 : Format::ggml);  // which half precision rounds
        const std::vector<double> values = decode(w);
        const View codes = files.need("a.weight_packed"), scales = files.need("a.weight_scale");
        for (int64_t r = 0; r < kRows; ++r) {
          for (int64_t c = 0; c < kCols; ++c) {
            int code = 0;
            for (int bit = 0; bit < bits; ++bit) {
              const int64_t at = c * bits + bit;
              code |= static_cast<int>(static_cast<uint32_t>(codes.as<int32_t>(r)[at / 32]) >> at % 32 & 1) << bit;
            }
            const double scale = element(scales, r * groups + c / (kCols / groups));
            ASSERT_EQ(values[static_cast<size_t>(r * kCols + c)],
                      static_cast<float>((code - (1 << (bits - 1))) * scale))
                << bits << " bits, " << groups << " groups, " << r << " " << c;
          }
        }
      }
    }
  }
}

TEST_F(CompressedWeight, Nvfp4DividesByItsGlobalScale) {
  constexpr double kMagnitudes[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  const io::Safetensors files =
      file({bytes("_packed", DType::u8, {kRows, kCols / 2}),
            part("_scale", DType::f8_e4m3, {kRows, kCols / 16}, [&] { return std::fabs(100 * signed_scale()) + 1; }),
            part("_global_scale", DType::f32, {1}, [] { return 512; })});
  const std::vector<double> values = decode(read(files));
  const View codes = files.need("a.weight_packed"), scales = files.need("a.weight_scale");
  for (int64_t i = 0; i < kRows * kCols; ++i) {
    const int code = codes.as<uint8_t>()[i / 2] >> i % 2 * 4 & 15;
    const double v = kMagnitudes[code & 7] * element(scales, i / 16) / 512;
    ASSERT_EQ(values[static_cast<size_t>(i)], code & 8 ? -v : v) << i;
  }
}

TEST_F(CompressedWeight, DamagedScalesAndShapesAreNamed) {
  const auto error = [&](const std::vector<Part>& parts) {
    const io::Safetensors files = file(parts);
    return support::error_of([&] { read(files); });
  };
  const Part codes = bytes("_packed", DType::i32, {kRows, kCols / 8});
  const auto scales = [&](double value) { return part("_scale", DType::f32, {kRows, 1}, [=] { return value; }); };
  const auto shape = [&](std::vector<double> list) {
    size_t at = 0;
    return part("_shape", DType::i64, {std::ssize(list)}, [&] { return list[at++]; });
  };
  EXPECT_EQ(error({codes, scales(0.5), shape({kRows, kCols})}), "");
  EXPECT_NE(error({codes, scales(NAN)}).find("a.weight_scale are damaged; got nan"), std::string::npos);
  EXPECT_NE(
      error({codes, scales(0.5), shape({kRows, 7})}).find("_shape is of another matrix; got [5, 7]; expected [5, 192]"),
      std::string::npos);
  EXPECT_NE(error({codes, scales(0.5), shape({kRows})}).find("_shape does not fit"), std::string::npos);
  EXPECT_NE(error({bytes("_packed", DType::i32, {}), scales(0.5)}).find("_packed does not fit"), std::string::npos);
  const Part four = bytes("_packed", DType::u8, {kRows, kCols / 2});
  EXPECT_NE(error({four, part("_scale", DType::u8, {kRows, kCols / 32}, [] { return 255; })}).find("NaN"),
            std::string::npos);
  const Part blocks = part("_scale", DType::f8_e4m3, {kRows, kCols / 16}, [] { return 1; });
  for (const double global : {0., -1., static_cast<double>(INFINITY)})
    EXPECT_NE(error({four, blocks, part("_global_scale", DType::f32, {1}, [=] { return global; })})
                  .find("_global_scale is damaged"),
              std::string::npos)
        << global;
}

// Of both signs, at every place of whole words and of what follows them; the other bytes are all that are not NaN.
TEST(Scales, NanIsFoundAnywhere) {
  constexpr int64_t kLength = 21;
  for (int other = 0; other < 256; ++other) {
    if ((other & 0x7f) == 0x7f) continue;
    for (int64_t length = 1; length <= kLength; ++length) {
      std::vector<uint8_t> bits(static_cast<size_t>(2 * length), static_cast<uint8_t>(other));
      const View scales(reinterpret_cast<const std::byte*>(bits.data()), DType::f8_e4m3, {2, length});
      EXPECT_EQ(support::error_of([&] { check_scales("x", "a", scales); }), "") << other;
      for (const int nan : {0x7f, 0xff}) {
        const auto at = static_cast<size_t>(length + (other + length) % length);
        bits[at] = static_cast<uint8_t>(nan);
        EXPECT_EQ(support::error_of([&] { check_scales("x", "a", scales); }),
                  "[x] scales a are damaged; got NaN in row 1")
            << other << " " << at;
        bits[at] = static_cast<uint8_t>(other);
      }
    }
  }
}

}  // namespace
}  // namespace braid::models
