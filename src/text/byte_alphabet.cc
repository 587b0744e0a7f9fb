#include "text/byte_alphabet.h"

#include <array>
#include <cstdint>

#include "sys/utf8.h"

namespace braid::text {
namespace {

constexpr int kLetters = 0x144;  // the alphabet ends with U+0143

struct Alphabet {
  std::array<char16_t, 256> of_byte{};
  std::array<int16_t, kLetters> of_letter{};
};

// Printable Latin-1 stands for itself; the other 68 bytes take the characters from U+0100 on, in order.
constexpr Alphabet make_alphabet() {
  Alphabet a;
  for (auto& byte : a.of_letter) byte = -1;
  char16_t next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const bool itself = (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
    const char16_t letter = itself ? static_cast<char16_t>(byte) : next++;
    a.of_byte[static_cast<size_t>(byte)] = letter;
    a.of_letter[letter] = static_cast<int16_t>(byte);
  }
  return a;
}
constexpr Alphabet kAlphabet = make_alphabet();

}  // namespace

bool bytes_of_spelling(std::string_view spelled, std::string& out) {
  const size_t before = out.size();
  for (size_t at = 0; at < spelled.size();) {
    const sys::Utf8Step step = sys::utf8_step(spelled, at);
    const int16_t byte =
        step.kind == sys::Utf8::valid && step.value < kLetters ? kAlphabet.of_letter[step.value] : int16_t{-1};
    if (byte < 0) {
      out.resize(before);
      return false;
    }
    out += static_cast<char>(byte);
    at += step.length;
  }
  return true;
}

void append_spelling(std::string_view bytes, std::string& out) {
  for (const char ch : bytes) sys::append_utf8(kAlphabet.of_byte[static_cast<unsigned char>(ch)], out);
}

}  // namespace braid::text
