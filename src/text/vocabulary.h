// Token strings and their ids, both ways. All strings are in one arena; ids are found by a flat hash table whose slots
// hold the first eight bytes of a token, so that most look-ups touch one cache line. A token has a spelling (its bytes)
// and a script: `bytes` when the letters of a byte-level vocabulary were decoded into bytes, `text` otherwise. The two
// never match: a model that works on bytes cannot produce a text token.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace braid::text {

enum class Script : uint8_t { text, bytes };

constexpr int32_t kTokenIdMax = (1 << 23) - 1;  // eight times the largest released vocabulary; bounds the tables

class Vocabulary {
 public:
  // Error when the id is negative, above kTokenIdMax or taken, or the token exists already.
  void add(std::string_view spelling, Script script, int64_t id, const std::string& where);

  std::optional<int32_t> find(std::string_view spelling, Script script) const {
    return find(spelling, script, hash_of(spelling));
  }
  // The same with a hash already computed.
  std::optional<int32_t> find(std::string_view spelling, Script script, uint64_t hash) const;
  static uint64_t hash_of(std::string_view text);

  bool has(int32_t id) const { return id >= 0 && id < id_limit() && entries_[static_cast<size_t>(id)].used; }
  std::string_view spelling(int32_t id) const;  // has(id)
  Script script(int32_t id) const { return entries_[static_cast<size_t>(id)].script; }
  int32_t id_limit() const { return static_cast<int32_t>(entries_.size()); }  // one above the largest id
  int64_t size() const { return count_; }

 private:
  struct Entry {
    uint32_t offset = 0, length = 0;
    Script script = Script::text;
    bool used = false;
  };
  struct Slot {
    uint64_t head = 0;  // the first eight bytes, zero-padded
    uint32_t tag = 0;   // hash, script and length
    int32_t id = -1;
  };
  static Slot key_of(std::string_view spelling, Script script, uint64_t hash);
  void insert(int32_t id);
  void grow();
  std::string arena_;
  std::vector<Entry> entries_;  // by id
  std::vector<Slot> slots_;     // power of two, at most half full, linear probing
  int64_t count_ = 0;
};

}  // namespace braid::text
