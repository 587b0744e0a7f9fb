// GPT-2's byte alphabet: byte-level vocabularies spell every byte as one printable character (space is U+0120).
#pragma once
#include <string>
#include <string_view>

namespace braid::text {

// Appends the bytes that `spelled` stands for; false (`out` unchanged) when a character is outside the alphabet.
bool bytes_of_spelling(std::string_view spelled, std::string& out);
void append_spelling(std::string_view bytes, std::string& out);

}  // namespace braid::text
