// The cache of huggingface_hub: models--org--name/{blobs, refs/<rev> (a commit), snapshots/<commit>/<file> -> blobs}.
#include "io/model_path.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <optional>
#include <system_error>

#include "io/atomic_file.h"
#include "io/json.h"
#include "io/placeholder.h"
#include "io/safetensors.h"
#include "sys/error.h"
#include "sys/mapped_file.h"
#include "sys/nearest.h"

namespace braid::io {
namespace fs = std::filesystem;
namespace {

constexpr const char* kExpected = "a folder, a GGUF file, a .safetensors file, org/name[@rev] or tiny";

bool is_folder(const fs::path& path) {
  std::error_code none;
  return fs::is_directory(path, none);
}

struct Repository {
  std::string name, revision;  // revision is empty when none was asked for
};

// org/name, or a bare name, as the hub's first models have; nothing that could lead out of the cache.
std::optional<Repository> parse_repository(std::string_view text) {
  const size_t at = text.find('@');
  Repository r{std::string(text.substr(0, at)), at == text.npos ? "" : std::string(text.substr(at + 1))};
  const auto plain = [](char ch) {
    return std::isalnum(static_cast<unsigned char>(ch)) || ch == '-' || ch == '_' || ch == '.';
  };
  const auto slash = [](char ch) { return ch == '/'; };
  const bool named = std::all_of(r.name.begin(), r.name.end(), [&](char ch) { return plain(ch) || slash(ch); }) &&
                     std::count_if(r.name.begin(), r.name.end(), slash) <= 1;
  const bool revised =
      std::all_of(r.revision.begin(), r.revision.end(), [&](char ch) { return plain(ch) || slash(ch); });
  const auto escapes = [](const std::string& part) {
    return part.starts_with(".") || part.starts_with("/") || part.ends_with("/") || part.find("..") != part.npos;
  };
  if (r.name.empty() || !named || !revised || escapes(r.name) || escapes(r.revision)) return std::nullopt;
  if (at != text.npos && r.revision.empty()) return std::nullopt;
  return r;
}

fs::path cache_folder(const fs::path& hub, std::string name) {
  if (const size_t slash = name.find('/'); slash != name.npos)
    name = name.substr(0, slash) + "--" + name.substr(slash + 1);
  return hub / ("models--" + name);
}

std::string read_ref(const fs::path& path) {
  std::ifstream file(path);
  std::string commit;
  file.width(256);
  file >> commit;
  return commit.find('/') == commit.npos && !commit.starts_with(".") ? commit : "";
}

// The snapshot of a revision: a branch or tag, a commit, or a prefix of one. Without a revision: main, or the only one.
std::optional<fs::path> find_snapshot(const fs::path& cached, const std::string& revision) {
  const fs::path snapshots = cached / "snapshots";
  const std::string commit = read_ref(cached / "refs" / (revision.empty() ? "main" : revision));
  if (!commit.empty() && is_folder(snapshots / commit)) return snapshots / commit;
  std::vector<fs::path> fitting;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(snapshots, none)) {
    if (entry.path().filename().string().starts_with(revision)) fitting.push_back(entry.path());
  }
  return fitting.size() == 1 ? std::optional(fitting.front()) : std::nullopt;
}

// The nearest name that exists, or where to download the missing one.
std::string hint_for_missing(const std::string& name, const ModelPlaces& places) {
  std::vector<std::string> names;
  for (const LocalModel& model : find_local_models(places)) names.push_back(model.path.name);
  const std::string near = sys::nearest(name, names), shown = printable(name);
  if (!near.empty()) return printable(near) + ", or braid list";
  if (name.find('/') == name.npos) return fmt::format("braid list, or hf download {}", shown);
  return fmt::format("hf download {}, or git lfs install && git clone https://huggingface.co/{}", shown, shown);
}

[[noreturn]] void fail_uncached(const Repository& r, const ModelPlaces& places) {
  const std::string name = printable(r.name);
  const bool known = is_folder(cache_folder(places.hub, r.name));
  fail(name, {.what = known ? "this revision is not in the Hugging Face cache"
                            : "is not a folder and not in the Hugging Face cache",
              .got = known ? printable(r.revision.empty() ? "no main" : r.revision) : "",
              .expected = "it in " + printable(places.hub.string()),
              .hint = r.revision.empty() ? hint_for_missing(r.name, places)
                                         : fmt::format("hf download {} --revision {}", name, printable(r.revision))});
}

// A file with a graph, as braid data graph writes it, has the extension of a model. One that is damaged is refused
// where it is read.
void refuse_graph(const fs::path& path, const std::string& where) {
  try {
    const Safetensors file(path);
    if (!file.find("rowptr") || !file.find("col")) return;
  } catch (const Error&) {
    return;
  }
  fail(where,
       {.what = "is a graph, not a model",
        .hint = fmt::format("braid info {}, or braid train with objective = \"graph\" and it as graph.path", where)});
}

// The base model of an adapter, as its config names it; MODEL where it does not.
std::string base_of_adapter(const fs::path& folder) {
  try {
    const Json config = Json::read(folder / kAdapterConfig);
    return printable(config.string_of({"base_model_name_or_path"}).value_or("MODEL"));
  } catch (const Error&) {
    return "MODEL";
  }
}

void refuse_adapter(const fs::path& folder, std::string_view argument) {
  std::error_code none;
  const auto has = [&](const char* file) { return fs::exists(folder / file, none); };
  if (has("config.json") || (!has(kAdapterConfig) && !has(kAdapterWeights))) return;
  const std::string base = base_of_adapter(folder), shown = printable(folder.string());
  fail(printable(argument), {.what = "is a LoRA adapter, not a model",
                             .expected = "its base model",
                             .hint = fmt::format("{} with --adapter {}, or braid merge {} --adapter {} -o FOLDER", base,
                                                 shown, base, shown)});
}

ModelPath named_file(const fs::path& path) {
  const std::string where = printable(path.string());
  if (path.extension() == ".incomplete")
    fail(where, {.what = "is an unfinished download", .hint = "hf download ORG/NAME again"});
  if (path.extension() == ".gguf") return {path.filename().string(), path, path};
  if (path.extension() != ".safetensors")
    fail(where, {.what = "is not a model", .expected = "a folder, a .safetensors or a .gguf file"});
  refuse_graph(path, where);
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  if (path.filename() == kAdapterWeights) refuse_adapter(folder, path.string());
  return {path.filename().string(), folder, path};
}

std::string folder_name(const fs::path& folder) {
  const fs::path whole = fs::absolute(folder).lexically_normal();
  return (whole.has_filename() ? whole : whole.parent_path()).filename().string();
}

LocalModel inspect(ModelPath path) {
  LocalModel model{.path = std::move(path)};
  std::vector<fs::path> files;
  try {
    files = weight_files(model.path.folder);
  } catch (const Error&) {  // a list treats an unreadable index as missing
  }
  if (files.empty()) model.fetched = Fetched::incomplete;
  for (const fs::path& file : files) {
    std::error_code missing;
    const auto size = fs::file_size(file, missing);
    if (missing) {
      model.fetched = Fetched::incomplete;
      continue;
    }
    model.bytes += static_cast<int64_t>(size);
    constexpr uintmax_t pointer_bytes_max = 1024;
    if (size < pointer_bytes_max && is_lfs_pointer(sys::MappedFile(file).bytes()))
      model.fetched = Fetched::lfs_pointers;
  }
  return model;
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value ? value : "";
}

}  // namespace

ModelPlaces ModelPlaces::from_environment() {
  ModelPlaces places;
  const std::string cache = variable("HF_HUB_CACHE"), home = variable("HF_HOME"), xdg = variable("XDG_CACHE_HOME");
  if (!cache.empty())
    places.hub = cache;
  else if (!home.empty())
    places.hub = fs::path(home) / "hub";
  else if (!xdg.empty())
    places.hub = fs::path(xdg) / "huggingface/hub";
  else
    places.hub = fs::path(variable("HOME")) / ".cache/huggingface/hub";

  std::error_code none;
  const fs::path program = fs::read_symlink("/proc/self/exe", none);
  const fs::path installed = program.parent_path().parent_path() / "share/braid/models/tiny";
  if (const std::string tiny = variable("BRAID_TINY"); !tiny.empty())
    places.tiny = tiny;
  else
    places.tiny = is_folder(installed) ? installed : fs::path(BRAID_SOURCE_DIR) / "models/tiny";
  return places;
}

bool names_a_file(const fs::path& path) {
  constexpr std::string_view kEndings[] = {".gguf", ".safetensors", ".json", ".jinja"};
  return std::find(std::begin(kEndings), std::end(kEndings), path.extension().string()) != std::end(kEndings);
}

void check_new_model(const fs::path& folder) {
  if (folder == "tiny")
    fail("tiny", {.what = "is the name of the model that ships with Braid",
                  .expected = "another name for the new model",
                  .hint = "./tiny"});
  check_new_folder(folder);
}

ModelPath find_model(std::string_view argument, const ModelPlaces& places) {
  const fs::path path(argument);
  std::error_code none;
  if (argument.empty()) fail("MODEL", {.what = "is empty", .expected = "a folder, a GGUF file, org/name or tiny"});
  if (argument == "tiny") {
    if (is_folder(places.tiny)) return {"tiny", places.tiny, places.tiny};
    fail("tiny", {.what = "the model that ships with Braid is not installed",
                  .expected = "it in " + printable(places.tiny.string()),
                  .hint = "BRAID_TINY=FOLDER"});
  }
  if (is_folder(path)) {
    refuse_adapter(path, argument);
    return {folder_name(path), path, path};
  }
  if (fs::exists(path, none)) return named_file(path);
  const auto repository = parse_repository(argument);
  const auto snapshot =
      repository ? find_snapshot(cache_folder(places.hub, repository->name), repository->revision) : std::nullopt;
  if (snapshot) {
    refuse_adapter(*snapshot, argument);
    return {repository->name, *snapshot, *snapshot};
  }
  if (names_a_file(path)) {
    const char* expected = path.extension() == ".gguf"          ? "a GGUF file"
                           : path.extension() == ".safetensors" ? "a .safetensors file"
                                                                : kExpected;
    fail(printable(argument), {.what = "no such file", .expected = expected});
  }
  if (!repository) {
    fail(printable(argument),
         {.what = "no such model",
          .expected = kExpected,
          .hint = "hf download ORG/NAME, or git lfs install && git clone https://huggingface.co/ORG/NAME"});
  }
  fail_uncached(*repository, places);
}

void need_folder(const ModelPath& model) {
  if (!model.is_gguf()) return;
  fail(printable(model.name),
       {.what = "is a GGUF file", .expected = "a Hugging Face folder", .hint = "braid convert FILE.gguf FOLDER first"});
}

std::vector<LocalModel> find_local_models(const ModelPlaces& places) {
  std::vector<LocalModel> models;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(places.hub, none)) {
    const auto snapshot = find_snapshot(entry.path(), "");
    if (!snapshot) continue;
    const std::string name = cached_repository(*snapshot);
    if (!name.empty()) models.push_back(inspect({name, *snapshot, *snapshot}));
  }
  std::sort(models.begin(), models.end(),
            [](const LocalModel& a, const LocalModel& b) { return a.path.name < b.path.name; });
  if (is_folder(places.tiny)) models.insert(models.begin(), inspect({"tiny", places.tiny, places.tiny}));
  return models;
}

}  // namespace braid::io
