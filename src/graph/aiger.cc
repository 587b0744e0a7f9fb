#include "graph/aiger.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "sys/error.h"
#include "sys/read.h"

namespace braid::graph {
namespace {

// Variables that a short file may declare; beyond, at most this many for each of its bytes: inputs of the binary form
// take none.
constexpr int64_t kFewVariables = 1 << 20, kVariablesPerByte = 8;
constexpr size_t kQuotedBytes = 20;                         // bytes that an error quotes, about
constexpr int64_t kMostVariables = (int64_t{1} << 30) - 1;  // their literals are I32

class AigerCursor {
 public:
  AigerCursor(std::string_view text, const std::string& where) : text_(text), where_(where) {}

  int64_t number(int64_t most, const char* what) {
    int64_t value = 0;
    const char* const begin = text_.data() + at_;
    const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), value);
    if (error != std::errc() || *begin == '-' || value > most) {
      const std::string_view rest = text_.substr(at_);
      refuse(fmt::format("{} is not a number from 0 to {}", what, most), rest.substr(0, rest.find_first_of(" \n")));
    }
    at_ += static_cast<size_t>(end - begin);
    return value;
  }
  bool take(char c) {
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    line_ += c == '\n' ? 1 : 0;
    return true;
  }
  void need(char c) {
    if (!take(c)) refuse(c == '\n' ? "a line does not end here" : "no blank between numbers", line_left());
  }
  std::string_view line_left() const { return text_.substr(at_, text_.find('\n', at_) - at_); }
  // 7 bits a byte, the lowest first; the highest bit says that more follow.
  int64_t delta(int64_t most, const char* what) {
    int64_t value = 0;
    for (int shift = 0; shift < 35; shift += 7) {
      if (at_ == text_.size()) refuse("ends within its gates", "");
      const auto byte = static_cast<int64_t>(static_cast<unsigned char>(text_[at_++]));
      value += (byte % 128) << shift;
      if (byte < 128) {
        if (value > most) break;
        return value;
      }
    }
    refuse(fmt::format("{} names no variable before it", what), std::to_string(value));
  }
  [[noreturn]] void refuse(const std::string& what, std::string_view got) const {
    fail(where_, {.what = fmt::format("line {}: {}", line_, what), .got = printable(got, kQuotedBytes)});
  }
  [[noreturn]] void refuse_whole(const char* what, int64_t literal) const {
    fail(where_, {.what = what, .got = fmt::format("literal {}", literal)});
  }

 private:
  std::string_view text_;
  const std::string& where_;
  size_t at_ = 0;
  int64_t line_ = 1;
};

struct AigerSizes {
  int64_t variables = 0, inputs = 0, latches = 0, outputs = 0, gates = 0;
};

AigerSizes read_sizes(AigerCursor& file, int64_t bytes) {
  const int64_t most = std::min(kMostVariables, std::max(kFewVariables, kVariablesPerByte * bytes));
  AigerSizes s;
  const std::pair<int64_t*, const char*> fields[] = {
      {&s.variables, "M"}, {&s.inputs, "I"}, {&s.latches, "L"}, {&s.outputs, "O"}, {&s.gates, "A"}};
  for (const auto& [value, name] : fields) {
    file.need(' ');
    *value = file.number(most, name);
  }
  // Version 1.9: bad states, invariants, justice and fairness, which synthesis does not know.
  for (int i = 0; i < 4 && file.take(' '); ++i) {
    if (file.number(most, "B C J F") != 0) file.refuse("properties to check", "B C J F in the header");
  }
  file.need('\n');
  if (s.variables < s.inputs + s.latches + s.gates)
    file.refuse("fewer variables than inputs, latches and gates", std::to_string(s.variables));
  // Each takes a line, or two bytes.
  if (s.outputs > bytes || s.latches > bytes || s.gates > bytes) file.refuse("more sizes than the file has bytes", "");
  return s;
}

// What a latch will hold: its line goes on after its own literal.
int32_t next_state(AigerCursor& file, int64_t literals) {
  const auto next = static_cast<int32_t>(file.number(literals, "a next state"));
  if (file.take(' ')) file.number(literals, "a reset");
  file.need('\n');
  return next;
}

Aig read_binary(AigerCursor& file, const AigerSizes& s) {
  if (s.variables != s.inputs + s.latches + s.gates)
    file.refuse("the binary form has no unused variables", std::to_string(s.variables));
  Aig aig{.inputs = s.inputs + s.latches};
  const int64_t literals = 2 * s.variables + 1;
  std::vector<int32_t> next;
  for (int64_t i = 0; i < s.latches; ++i) next.push_back(next_state(file, literals));
  for (int64_t i = 0; i < s.outputs; ++i) {
    aig.outputs.push_back(static_cast<int32_t>(file.number(literals, "an output")));
    file.need('\n');
  }
  aig.outputs.insert(aig.outputs.end(), next.begin(), next.end());
  for (int64_t i = 0; i < s.gates; ++i) {
    const int64_t own = 2 * (aig.inputs + 1 + i), first = file.delta(own, "a gate's left side");
    if (first == 0) file.refuse("a gate that reads itself", std::to_string(own));
    const int64_t left = own - first, right = left - file.delta(left, "a gate's right side");
    aig.gates.push_back({static_cast<int32_t>(left), static_cast<int32_t>(right)});
  }
  return aig;
}

// The ASCII form numbers and orders its variables freely.
class AsciiAiger {
 public:
  AsciiAiger(AigerCursor& file, const AigerSizes& s)
      : file_(file),
        sizes_(s),
        literals_(2 * s.variables + 1),
        gate_(static_cast<size_t>(s.variables) + 1, -1),
        place_(static_cast<size_t>(s.variables) + 1, -1) {}

  Aig read() {
    place_[0] = 0;
    Aig aig{.inputs = sizes_.inputs + sizes_.latches};
    std::vector<int32_t> next;
    for (int64_t i = 0; i < aig.inputs; ++i) {
      place_[defined("an input")] = static_cast<int32_t>(1 + i);
      if (i < sizes_.inputs) {
        file_.need('\n');
      } else {
        file_.need(' ');
        next.push_back(next_state(file_, literals_));
      }
    }
    for (int64_t i = 0; i < sizes_.outputs; ++i) {
      aig.outputs.push_back(literal("an output"));
      file_.need('\n');
    }
    aig.outputs.insert(aig.outputs.end(), next.begin(), next.end());
    for (int64_t i = 0; i < sizes_.gates; ++i) {
      variables_.push_back(static_cast<int32_t>(defined("a gate")));
      gate_[static_cast<size_t>(variables_.back())] = static_cast<int32_t>(i);
      file_.need(' ');
      const int32_t left = literal("a gate's left side");
      file_.need(' ');
      read_.push_back({left, literal("a gate's right side")});
      file_.need('\n');
    }
    for (const int32_t g : order()) {
      place_[static_cast<size_t>(variables_[static_cast<size_t>(g)])] =
          static_cast<int32_t>(1 + aig.inputs + std::ssize(aig.gates));
      const auto& [left, right] = read_[static_cast<size_t>(g)];
      aig.gates.push_back({placed(left), placed(right)});
    }
    for (int32_t& output : aig.outputs) output = placed(output);
    return aig;
  }

 private:
  int32_t literal(const char* what) { return static_cast<int32_t>(file_.number(literals_, what)); }

  // The variable of the literal that a line defines.
  size_t defined(const char* what) {
    const int32_t own = literal(what);
    const auto variable = static_cast<size_t>(own / 2);
    if (own % 2 != 0 || place_[variable] >= 0 || gate_[variable] >= 0)
      file_.refuse(fmt::format("{} is inverted, constant or defined twice", what), std::to_string(own));
    return variable;
  }

  int32_t placed(int32_t literal) const {
    const int32_t place = place_[static_cast<size_t>(literal / 2)];
    if (place < 0) file_.refuse_whole("reads what is neither an input nor a gate", literal);
    return 2 * place + literal % 2;
  }

  // Depth first, gates after what they read; without recursion, since chains are long.
  std::vector<int32_t> order() const {
    enum : uint8_t { unseen, open, done };
    std::vector<uint8_t> state(read_.size(), unseen);
    std::vector<int32_t> order, stack;
    for (size_t root = 0; root < read_.size(); ++root) {
      stack.push_back(static_cast<int32_t>(root));
      while (!stack.empty()) {
        const auto g = static_cast<size_t>(stack.back());
        int32_t before = -1;
        for (const int32_t side : read_[g]) {
          const int32_t other = gate_[static_cast<size_t>(side / 2)];
          if (other < 0 || state[static_cast<size_t>(other)] == done) continue;
          if (state[static_cast<size_t>(other)] == open || static_cast<size_t>(other) == g)
            file_.refuse_whole("has gates in a circle", 2 * variables_[g]);
          before = other;
        }
        if (state[g] == done || before < 0) {
          if (state[g] != done) order.push_back(static_cast<int32_t>(g));
          state[g] = done;
          stack.pop_back();
        } else {
          state[g] = open;
          stack.push_back(before);
        }
      }
    }
    return order;
  }

  AigerCursor& file_;
  AigerSizes sizes_;
  int64_t literals_;
  std::vector<int32_t> gate_, place_;  // by variable: which gate in the file, and its number in the result; -1: none
  std::vector<int32_t> variables_;     // of gates
  std::vector<std::array<int32_t, 2>> read_;
};

}  // namespace

Aig parse_aiger(std::string_view bytes, const std::string& where) {
  const bool ascii = bytes.starts_with("aag ");
  if (!ascii && !bytes.starts_with("aig "))
    fail(where, {.what = "is not an AIGER file",
                 .got = printable(bytes, kQuotedBytes),
                 .expected = "aag or aig, then five sizes"});
  AigerCursor file(bytes.substr(3), where);
  const AigerSizes sizes = read_sizes(file, std::ssize(bytes));
  return ascii ? AsciiAiger(file, sizes).read() : read_binary(file, sizes);
}

Aig read_aiger(const std::filesystem::path& path) {
  constexpr size_t kBytesMax = size_t{1} << 30;
  return parse_aiger(sys::read_file(path, kBytesMax), printable(path.string()));
}

AigNodes nodes_of(const Aig& aig) {
  const int64_t before = 1 + aig.inputs, gates = std::ssize(aig.gates), outputs = std::ssize(aig.outputs),
                count = before + gates + outputs;
  AigNodes nodes;
  nodes.in.rows = nodes.in.cols = count;
  nodes.in.rowptr.reserve(static_cast<size_t>(count) + 1);
  nodes.level.reserve(static_cast<size_t>(count));
  const auto add = [&](AigKind kind, std::initializer_list<int32_t> read) {
    int32_t level = 0, inverted = 0;
    for (const int32_t literal : read) {
      nodes.in.col.push_back(literal / 2);
      inverted += literal % 2;
      level = std::max(level, nodes.level[static_cast<size_t>(literal / 2)]);
    }
    std::sort(nodes.in.col.end() - static_cast<std::ptrdiff_t>(read.size()), nodes.in.col.end());
    nodes.in.rowptr.push_back(nodes.in.edges());
    nodes.kind.push_back(kind);
    nodes.inverted.push_back(static_cast<uint8_t>(inverted));
    nodes.level.push_back(level + (kind == AigKind::gate ? 1 : 0));
  };
  add(AigKind::constant, {});
  for (int64_t i = 0; i < aig.inputs; ++i) add(AigKind::input, {});
  for (const auto& [left, right] : aig.gates) add(AigKind::gate, {left, right});
  for (const int32_t output : aig.outputs) add(AigKind::output, {output});
  nodes.depth = *std::max_element(nodes.level.begin(), nodes.level.end());
  return nodes;
}

}  // namespace braid::graph
