// Source: rows by number. A row is a pure function of its number, so that shuffling, blending and resuming are
// arithmetic on numbers (loader.h).
#pragma once
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "data/batch.h"
#include "data/goldfish.h"

namespace braid::data {

// Rules that every row follows.
struct RowRules {
  int64_t length = 0;      // tokens per row at most
  int64_t vocabulary = 0;  // ids are in [0, vocabulary)
  Goldfish goldfish{};
};

// Appends sequences to the row that a source was asked for.
class RowWriter {
 public:
  // Messages start with `where`; `position` is the row's first token among all of the run.
  RowWriter(Batch& batch, const RowRules& rules, const std::string& where, int64_t position)
      : batch_(batch), rules_(rules), where_(where), position_(position) {}

  // tokens[first, first + count) become a sequence. The tokens before are context for the goldfish hash; the one after,
  // if any, is the last target. With `trained`, only tokens marked there are targets. Error on an id outside the
  // vocabulary.
  void add(std::span<const int32_t> tokens, int64_t first, int64_t count, std::span<const uint8_t> trained = {});
  // The sequence added last is an answer: its rating and, if known, the log-probability of each trained target.
  void rate(const Rating& rating, std::span<const float> logprobs);
  // Buffers reused from row to row.
  Batch::Scratch& scratch() { return batch_.scratch; }

 private:
  Batch& batch_;
  const RowRules& rules_;
  const std::string& where_;
  int64_t position_;
};

class Source {
 public:
  virtual ~Source() = default;
  virtual int64_t rows() const = 0;  // of one epoch; 0: endless
  virtual void row(int64_t index, RowWriter& out) const = 0;
  // A hash of all that its file says (content.h), in one pass on so many threads. 0: there is none; its words say all.
  virtual uint64_t content(int /*threads*/) const { return 0; }
  virtual bool in_order() const { return false; }  // its rows are not shuffled
  // The lowest loss that any model can reach, in nats per trained token, for sources whose distribution is known.
  virtual std::optional<double> entropy_floor() const { return std::nullopt; }
};

}  // namespace braid::data
