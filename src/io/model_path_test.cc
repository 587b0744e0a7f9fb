// A cache built by hand as huggingface_hub builds it: blobs, refs, snapshots of links.
#include "io/model_path.h"

#include "io/json.h"
#include "io/safetensors.h"
#include "support/error_of.h"
#include "support/folder.h"

namespace braid::io {
namespace {

using support::error_of;

namespace fs = std::filesystem;

const std::string kEmpty("\2\0\0\0\0\0\0\0{}", 10);  // a safetensors file without tensors

class ModelPathTest : public support::FolderTest {
 protected:
  ModelPathTest() {
    write("hub/models--org--name/refs/main", "aaa111\n");
    write("hub/models--org--name/refs/refs/pr/1", "bbb222");
    add("org--name", "aaa111", "config.json", "{}");
    add("org--name", "aaa111", "model.safetensors", kEmpty);
    add("org--name", "bbb222", "config.json", "{}");
    write("tiny/model.safetensors", kEmpty);
  }
  void add(const std::string& repository, const std::string& commit, const std::string& file,
           const std::string& bytes) const {
    const fs::path cached = folder_ / "hub" / ("models--" + repository);
    fs::create_directories(cached / "snapshots" / commit);
    fs::create_symlink("../../blobs/" + commit + file, cached / "snapshots" / commit / file);
    if (!bytes.empty()) write(cached / "blobs" / (commit + file), bytes);
  }
  std::string message(const std::string& argument) const {
    return error_of([&] { find_model(argument, places_); });
  }
  fs::path snapshots() const { return folder_ / "hub/models--org--name/snapshots"; }

  const ModelPlaces places_{folder_ / "hub", folder_ / "tiny"};
};

TEST_F(ModelPathTest, RevisionsByNameByCommitAndByPrefix) {
  EXPECT_EQ(find_model("org/name", places_).folder, snapshots() / "aaa111");
  EXPECT_EQ(find_model("org/name@main", places_).folder, snapshots() / "aaa111");
  EXPECT_EQ(find_model("org/name@refs/pr/1", places_).folder, snapshots() / "bbb222");
  EXPECT_EQ(find_model("org/name@bbb222", places_).folder, snapshots() / "bbb222");
  EXPECT_EQ(find_model("org/name@bb", places_).folder, snapshots() / "bbb222");
  EXPECT_EQ(find_model("org/name", places_).name, "org/name");
}

TEST_F(ModelPathTest, FoldersFilesAndTiny) {
  const ModelPath folder = find_model((folder_ / "tiny/").string(), places_);
  EXPECT_EQ(folder.name, "tiny");
  const ModelPath file = find_model((folder_ / "tiny/model.safetensors").string(), places_);
  EXPECT_EQ(file.folder, folder_ / "tiny");
  EXPECT_EQ(file.weights, folder_ / "tiny/model.safetensors");
  EXPECT_EQ(find_model("tiny", places_).folder, folder_ / "tiny");
  EXPECT_NE(error_of([&] {
              find_model("tiny", {places_.hub, folder_ / "none"});
            }).find("BRAID_TINY"),
            std::string::npos);
}

TEST_F(ModelPathTest, ANewModelIsNotCalledTiny) {
  EXPECT_EQ(
      error_of([] { check_new_model("tiny"); }),
      "[tiny] is the name of the model that ships with Braid; expected another name for the new model; try ./tiny");
  check_new_model(folder_ / "new/tiny");
  EXPECT_NE(error_of([&] { check_new_model(folder_ / "tiny"); }).find("already exists"), std::string::npos);
}

TEST_F(ModelPathTest, AMissSaysWhatToType) {
  EXPECT_EQ(message("org/other"),
            "[org/other] is not a folder and not in the Hugging Face cache; expected it in " + places_.hub.string() +
                "; try hf download org/other, or git lfs install && git clone https://huggingface.co/org/other");
  EXPECT_NE(message("tinny").find("; try tiny, or braid list"), std::string::npos) << message("tinny");
  EXPECT_NE(message("org/nmae").find("; try org/name, or braid list"), std::string::npos) << message("org/nmae");
  EXPECT_TRUE(message("bogus").ends_with("; try braid list, or hf download bogus")) << message("bogus");
  EXPECT_NE(message("org/name@v2").find("hf download org/name --revision v2"), std::string::npos)
      << message("org/name@v2");
  for (const char* text :
       {"./none", "../up", "a/b/c", "/none/x", "org/name@", "org/name@../../x", "org/..", "a\nb", ".hidden/x"}) {
    EXPECT_NE(message(text).find("no such model"), std::string::npos) << text << " -> " << message(text);
    EXPECT_NE(message(text).find("hf download ORG/NAME"), std::string::npos);
  }
  // A name with a file's extension means a file, with a folder or not.
  for (const char* text : {"none.gguf", "up/none.gguf", "a/b/none.gguf", "/none/x.gguf"})
    EXPECT_EQ(message(text), "[" + std::string(text) + "] no such file; expected a GGUF file");
  EXPECT_EQ(message("none.safetensors"), "[none.safetensors] no such file; expected a .safetensors file");
  EXPECT_EQ(message("none.json"),
            "[none.json] no such file; expected a folder, a GGUF file, a .safetensors file, org/name[@rev] or tiny");
  add("org--name.gguf", "ccc", "config.json", "{}");
  EXPECT_EQ(find_model("org/name.gguf", places_).name, "org/name.gguf");  // the name of a cached repository
  EXPECT_NE(message("").find("[MODEL] is empty; expected a folder"), std::string::npos);
  EXPECT_NE(message(write("x.bin", "").string()).find("is not a model"), std::string::npos);
  EXPECT_NE(message(write("x.incomplete", "").string()).find("unfinished download"), std::string::npos);
}

TEST_F(ModelPathTest, AGgufFileIsItsOwnFolder) {
  const ModelPath path = find_model(write("x.gguf", "GGUF").string(), places_);
  EXPECT_TRUE(path.is_gguf());
  EXPECT_EQ(path.name, "x.gguf");
  EXPECT_EQ(path.weights, path.folder);
}

TEST_F(ModelPathTest, ARefThatLeadsOutIsNotFollowed) {
  write("hub/models--org--evil/refs/main", "../../../tiny");
  EXPECT_NE(message("org/evil").find("this revision is not in"), std::string::npos) << message("org/evil");
}

TEST_F(ModelPathTest, FilesOfABrokenDownloadAreNamed) {
  add("org--half", "ccc", "config.json", "");
  add("org--half", "ccc", "model.safetensors", "");
  write("hub/models--org--half/blobs/123.incomplete", "");
  const ModelPath half = find_model("org/half", places_);
  const std::string config = error_of([&] { Json::read(half.folder / "config.json"); });
  const std::string weights = error_of([&] { Safetensors file(half.weights); });
  for (const std::string& text : {config, weights}) {
    EXPECT_NE(text.find("is missing, the download is incomplete (.incomplete blobs); try hf download org/half"),
              std::string::npos)
        << text;
  }
}

TEST_F(ModelPathTest, ListShowsTinyAndTheCache) {
  add("org--half", "ccc", "config.json", "{}");
  add("org--half", "ccc", "model.safetensors.index.json",
      R"({"weight_map":{"a":"1.safetensors","b":"2.safetensors"}})");
  add("org--half", "ccc", "1.safetensors", kEmpty);
  add("lfs", "ddd", "model.safetensors", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n");
  write("hub/datasets--org--data/snapshots/eee/x.json", "{}");
  write("hub/version.txt", "1");
  const auto models = find_local_models(places_);
  ASSERT_EQ(models.size(), 4u);
  EXPECT_EQ(models[0].path.name, "tiny");
  EXPECT_EQ(models[0].bytes, 10);
  EXPECT_EQ(models[1].path.name, "lfs");
  EXPECT_EQ(models[1].fetched, Fetched::lfs_pointers);
  EXPECT_EQ(models[2].path.name, "org/half");
  EXPECT_EQ(models[2].fetched, Fetched::incomplete);
  EXPECT_EQ(models[2].bytes, 10);
  EXPECT_EQ(models[3].path.name, "org/name");
  EXPECT_EQ(models[3].fetched, Fetched::complete);
  EXPECT_TRUE(find_local_models({folder_ / "none", folder_ / "none"}).empty());
}

TEST_F(ModelPathTest, TheEnvironmentSaysWhereTheCacheIs) {
  // In a child process, to keep the environment of other tests.
  const auto hub = [](const char* name, const char* value) {
    for (const char* known : {"HF_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"}) unsetenv(known);
    setenv("HOME", "/h", 1);
    if (name) setenv(name, value, 1);
    return ModelPlaces::from_environment().hub.string();
  };
  EXPECT_EXIT(
      {
        const bool right = hub("HF_HUB_CACHE", "/a") == "/a" && hub("HF_HOME", "/b") == "/b/hub" &&
                           hub("XDG_CACHE_HOME", "/c") == "/c/huggingface/hub" &&
                           hub(nullptr, "") == "/h/.cache/huggingface/hub";
        setenv("BRAID_TINY", "/t", 1);
        _exit(right && ModelPlaces::from_environment().tiny == "/t" ? 0 : 1);
      },
      testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace braid::io
