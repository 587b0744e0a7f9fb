#include "prune/write.h"

#include <algorithm>
#include <map>
#include <vector>

#include "io/atomic_file.h"
#include "io/atomic_folder.h"
#include "io/safetensors.h"
#include "io/safetensors_write.h"
#include "models/family.h"
#include "models/save.h"
#include "sys/check.h"

namespace braid::prune {
namespace {

// Only says whether experts are stacked, which is the same for all layers of a folder.
class StackedOrNot final : public nn::ParamSource {
 public:
  explicit StackedOrNot(bool stacked) : stacked_(stacked) {}
  bool has(const std::string&) const override { return stacked_; }

 protected:
  Param first(const nn::ParamRequest& r) override { CHECK(false, "{} of a list", r.name); }

 private:
  bool stacked_;
};

// A name as the files would spell it, from how they spell another: `known` in the config is `stored` in the files.
std::string spelled(const std::string& name, const std::string& known, const std::string& stored) {
  size_t same = 0;
  while (same < std::min(known.size(), stored.size()) &&
         known[known.size() - 1 - same] == stored[stored.size() - 1 - same])
    ++same;
  return stored.substr(0, stored.size() - same) + name.substr(known.size() - same);
}

// As blocks read it, to bytes as the files hold it.
std::vector<std::byte> stored_bytes(const nn::ParamRequest& request, const View& value, DType dtype) {
  std::vector<std::byte> bytes(static_cast<size_t>(value.count() * size_of(dtype)));
  const MutView out(bytes.data(), dtype, value.shape);
  const int64_t rows = value.dim(0), cols = value.dim(1);
  if (!request.transposed && dtype == value.dtype && request.plus == 0) {
    std::copy_n(value.data, value.bytes(), bytes.data());
    return bytes;
  }
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < cols; ++c) {
      const double v = element(value, r * cols + c) - static_cast<double>(request.plus);
      set_element(out, request.transposed ? c * rows + r : r * cols + c, v);
    }
  }
  return bytes;
}

}  // namespace

bool write_small(const io::ModelPath& parent, const models::Config& small, CutSource& source, bool stacked,
                 const std::string& config_text, const std::filesystem::path& out,
                 const sys::FunctionRef<bool(int64_t, int64_t)>& progress, const NestedFiles& nested) {
  const io::Safetensors files(parent.weights);
  const StackedOrNot layout(stacked);
  const std::vector<models::TensorSpec> tensors = stored_inventory(small, layout),
                                        named = stored_inventory(
                                            models::read_config(io::Json::parse(config_text, "config.json")), layout);
  CHECK(tensors.size() == named.size(), "{} tensors, {} names", tensors.size(), named.size());
  std::vector<io::TensorSpec> specs;
  std::map<std::string, const models::TensorSpec*> by_name;
  int64_t total = 0, done = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const std::string stored = source.stored_name(tensors[i]);
    const std::string name = spelled(named[i].name, source.origin(tensors[i]).spec.name, stored);
    const bool norm = tensors[i].role == ParamRole::norm || tensors[i].role == ParamRole::gated_norm;
    specs.push_back({name, norm && nested.exact_norms ? DType::f32 : files.need(stored).dtype, named[i].shape});
    by_name[name] = &tensors[i];
    total += specs.back().bytes();
  }
  io::AtomicFolder made(out, io::AtomicFolder::Mark::none);
  io::SafetensorsWriter writer(made.place(), std::move(specs));
  for (const io::TensorSpec& spec : writer.order()) {
    if (!progress(done, total)) return false;
    const models::TensorSpec& tensor = *by_name.at(spec.name);
    WeightStore store;  // of one tensor at a time
    source.make_in(store);
    writer.write(spec.name, stored_bytes(tensor, source.cut(tensor).value.codes, spec.dtype));
    done += spec.bytes();
  }
  writer.finish();
  models::copy_companions(parent.folder, made.place());
  if (!nested.sizes.empty()) io::write_text_file(made.place() / kNestedFile, nested.sizes);
  io::write_text_file(made.place() / "config.json", config_text);
  made.commit();
  return true;
}

}  // namespace braid::prune
