// braid convert: a model between Hugging Face's folder and llama.cpp's one file.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "apps/commands.h"
#include "apps/convert_sampling.h"
#include "codec/ggml_encode.h"
#include "io/atomic_file.h"
#include "io/atomic_folder.h"
#include "io/model_path.h"
#include "io/ordered_json.h"
#include "models/gguf_export.h"
#include "models/gguf_import.h"
#include "models/presets.h"
#include "report/progress.h"
#include "report/table.h"
#include "report/units.h"
#include "sys/error.h"
#include "sys/interrupt.h"
#include "sys/nearest.h"
#include "sys/parallel.h"
#include "text/gguf_vocabulary.h"
#include "text/gguf_vocabulary_write.h"
#include "text/tokenizer.h"

namespace braid::apps {
namespace {
namespace fs = std::filesystem;
struct ConvertArgs {
  std::string model, out, type = "bf16", head;
  bool strict = false, json = false;
};

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}
std::vector<std::string> type_names() {
  std::vector<std::string> names;
  for (const GgmlTypeRow& row : ggml_types()) {
    if (encodes(row.type)) names.push_back(lower(row.name));
  }
  return names;
}
GgmlType type_of(const char* option, const std::string& name) {
  for (const GgmlTypeRow& row : ggml_types()) {
    if (encodes(row.type) && lower(row.name) == lower(name)) return row.type;
  }
  fail(option, {.what = "unknown type",
                .got = printable(name),
                .expected = fmt::format("one of {}", fmt::join(type_names(), ", ")),
                .hint = sys::nearest(lower(name), type_names())});
}
const char* name_of(GgmlType type) { return ggml_type(static_cast<uint32_t>(type))->name; }

// Tensors of one type, and what they should have been.
struct Group {
  int64_t tensors = 0, values = 0, bytes = 0;
  std::vector<int64_t> rows{};  // lengths that the wanted type cannot hold

  double bits() const { return 8 * static_cast<double>(bytes) / static_cast<double>(values); }
};

using TensorGroups = std::map<std::pair<GgmlType, GgmlType>, Group>;  // by the type that was wanted, and that it got
TensorGroups tensor_groups(const models::GgufExport& file) {
  TensorGroups groups;
  for (const models::GgufExport::Tensor& tensor : file.tensors()) {
    const Shape& shape = tensor.spec.shape;
    Group& group = groups[{tensor.wanted, tensor.spec.type}];
    ++group.tensors;
    group.values += shape.count();
    group.bytes += tensor.spec.bytes();
    const int64_t row = shape[shape.rank - 1];
    if (tensor.wanted != tensor.spec.type && std::ranges::find(group.rows, row) == group.rows.end())
      group.rows.push_back(row);
  }
  return groups;
}

Group total(const TensorGroups& groups) {
  Group all;
  for (const auto& group : groups) {
    all.tensors += group.second.tensors;
    all.values += group.second.values;
    all.bytes += group.second.bytes;
  }
  return all;
}

void print_table(const TensorGroups& groups) {
  report::Table table({{"type"},
                       {"tensors", report::Align::right},
                       {"values", report::Align::right},
                       {"size", report::Align::right},
                       {"bits per weight", report::Align::right},
                       {""}});
  const auto row = [&](const std::string& name, const Group& g, const std::string& why) {
    table.row({name, std::to_string(g.tensors), report::count(static_cast<double>(g.values)), report::bytes(g.bytes),
               fmt::format("{:.3f}", g.bits()), why});
  };
  for (const auto& [types, group] : groups) {
    const bool fell_back = types.first != types.second;
    row(name_of(types.second), group,
        fell_back ? fmt::format("instead of {}: rows of {}", name_of(types.first), fmt::join(group.rows, ", ")) : "");
  }
  row("all", total(groups), "");
  fmt::print("{}", table.plain());
}

void print_json(const ConvertArgs& o, const models::GgufExport& file, const std::vector<std::string>& notes) {
  const Group all = total(tensor_groups(file));
  nlohmann::ordered_json json = {{"file", o.out},
                                 {"architecture", file.architecture()},
                                 {"values", all.values},
                                 {"bytes", all.bytes},
                                 {"bits_per_weight", all.bits()},
                                 {"notes", notes},
                                 {"tensors", nlohmann::ordered_json::array()}};
  for (const models::GgufExport::Tensor& tensor : file.tensors()) {
    const Shape& shape = tensor.spec.shape;
    json["tensors"].push_back({{"name", tensor.spec.name},
                               {"type", name_of(tensor.spec.type)},
                               {"wanted", name_of(tensor.wanted)},
                               {"shape", std::vector<int64_t>(shape.dims.begin(), shape.dims.begin() + shape.rank)},
                               {"bytes", tensor.spec.bytes()}});
  }
  fmt::print("{}\n", io::dumped(json));
}

// The exit code of write(progress), which a signal stops.
template <class Write>
int behind_bar(const std::string& out, int64_t total, Write&& write) {
  report::Progress bar("writing " + printable(fs::path(out).filename().string()), total);
  const bool whole = write([&](int64_t done) { return bar.at(done), sys::caught_signal() == 0; });
  return whole ? 0 : 128 + sys::caught_signal();
}

int to_gguf(const ConvertArgs& o, const io::ModelPath& model) {
  io::check_new_file(o.out);
  models::GgufOptions options{.type = type_of("--type", o.type), .strict = o.strict, .threads = sys::default_threads()};
  if (!o.head.empty()) options.head = type_of("--head", o.head);
  const models::GgufExport file(model, options);
  const models::Config& config = file.config();
  text::GgufVocabulary vocabulary =
      text::gguf_vocabulary(model.folder, {.size = config.vocab, .bos = config.bos, .ends = config.eos});
  add_sampling(model, vocabulary.fields);
  const auto write = [&](auto&& progress) { return file.write(o.out, vocabulary.fields, progress); };
  if (const int code = behind_bar(o.out, file.bytes(), write); code != 0) return code;
  std::vector<std::string> notes(file.notes().begin(), file.notes().end());
  if (std::ranges::any_of(file.tensors(), &models::GgufExport::Tensor::widened))
    notes.push_back("quantised matrices are written in BF16; --type nvfp4, q8_0 or mxfp4 keeps fewer bits");
  notes.insert(notes.end(), vocabulary.notes.begin(), vocabulary.notes.end());
  if (o.json) return print_json(o, file, notes), 0;
  print_table(tensor_groups(file));
  for (const std::string& note : notes) fmt::print("note: {}\n", note);
  return 0;
}

using Language = std::map<std::string, std::string>;  // texts of tokenizer and chat template, by file name

// What keeps a tokenizer from being written is a note.
Language language_of(const io::Gguf& file) {
  Language files;
  const text::TokenizerConfig language = text::tokenizer_config(file);
  nlohmann::ordered_json config = nlohmann::ordered_json::object();
  const auto add = [&](const char* name, const std::optional<std::string>& token) {
    if (token) config[name] = *token;
  };
  add("bos_token", language.bos_token);
  add("eos_token", language.eos_token);
  add("unk_token", language.unk_token);
  add("pad_token", language.pad_token);
  if (!language.named_templates.empty()) {
    auto& list = config["chat_template"] = nlohmann::ordered_json::array();
    if (language.chat_template) list.push_back({{"name", "default"}, {"template", *language.chat_template}});
    for (const text::NamedTemplate& named : language.named_templates)
      list.push_back({{"name", named.name}, {"template", named.source}});
  } else if (language.chat_template) {
    files["chat_template.jinja"] = *language.chat_template;
  }
  files["tokenizer_config.json"] = io::dumped(config, 2) + "\n";  // tokens hold any bytes
  try {
    files["tokenizer.json"] = text::tokenizer_json(file);
    text::Tokenizer::parse(files["tokenizer.json"], file.where());
  } catch (const Error& error) {
    fmt::print(stderr, "note: the folder has no tokenizer: {}\n", error.what());
    files.erase("tokenizer.json");
  }
  return files;
}

int to_folder(const ConvertArgs& o, const io::ModelPath& model) {
  io::check_new_model(o.out);
  io::check_parent(o.out);
  const std::string type = lower(o.type);
  if (type != "bf16" && type != "f32")
    fail("--type", {.what = "a folder cannot have it", .got = o.type, .expected = "bf16 or f32"});
  if (!o.head.empty() || o.strict)
    fail(o.strict ? "--strict" : "--head", {.what = "applies only where a GGUF file is written",
                                            .got = printable(o.out),
                                            .expected = "OUT.gguf",
                                            .hint = "leaving it out"});
  const io::Gguf file(model.weights);
  const models::FolderOptions options{.type = type == "f32" ? DType::f32 : DType::bf16,
                                      .threads = sys::default_threads()};
  const Language language = language_of(file);  // before any file is written: it may be malformed
  io::AtomicFolder made(o.out, io::AtomicFolder::Mark::none);
  const int64_t values = models::values_in(file);
  const auto write = [&](auto&& progress) { return models::write_folder(file, made.place(), options, progress); };
  if (const int code = behind_bar(o.out, values, write); code != 0) return code;
  add_sampling(model, made.place() / "generation_config.json");
  for (const auto& [name, text] : language) io::write_text_file(made.place() / name, text);
  made.commit();
  if (o.json) return fmt::print("{}\n", io::dumped({{"folder", o.out}, {"type", type}})), 0;
  fmt::print("{}: {} values in {}\n", printable(o.out), report::count(static_cast<double>(values)), type);
  return 0;
}

int convert(const ConvertArgs& o) {
  if (o.out.empty()) fail("convert", {.what = "no output is named", .hint = "braid convert MODEL OUT.gguf"});
  const io::ModelPath model = models::find_weights(o.model);
  const bool gguf = fs::path(o.out).extension() == ".gguf";
  if (gguf == model.is_gguf())
    fail(printable(o.out), {.what = gguf ? "would be a GGUF file like the model" : "does not end in .gguf",
                            .expected = "a folder and a .gguf file, in either order",
                            .hint = "braid convert MODEL OUT.gguf, or braid convert FILE.gguf OUTDIR"});
  sys::catch_requests_to_stop();  // before there is a file to remove
  return gguf ? to_gguf(o, model) : to_folder(o, model);
}

}  // namespace

Action setup_convert(Cli& cli) {
  auto o = std::make_shared<ConvertArgs>();
  cli.positional("model", o->model, "a folder, a GGUF file, org/name of the Hugging Face cache, or tiny");
  cli.positional("out", o->out, "OUT.gguf, or of a GGUF file the folder to write, in bf16 or f32");
  cli.option("--type TYPE", o->type, "of the large matrices: " + fmt::format("{}", fmt::join(type_names(), ", ")));
  cli.option("--head TYPE", o->head, "of the head; by default the same, and at least q6_k");
  cli.flag("--strict", o->strict, "an error if a type cannot hold a matrix, instead of the nearest that can");
  cli.flag("--json", o->json, "print one JSON object");
  return [o] { return convert(*o); };
}

}  // namespace braid::apps
