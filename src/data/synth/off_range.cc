// What looks like the tasks but is beyond them: longer numbers and words, other operations. Questions have the same
// forms as those within range where they can, so that only what is asked tells them apart.
#include <fmt/format.h>

#include "data/synth/frames.h"
#include "data/synth/task.h"
#include "data/synth/text.h"
#include "data/synth/words.h"

namespace braid::synth {
namespace {

constexpr std::string_view kBeyondRange =
    "I only work with two whole numbers below 1000 and words of up to 12 letters.";

constexpr std::string_view kSeveral[] = {
    "{a}+{b}+{c}",
    "{a} + {b} + {c}",
    "{a} + {b} - {c}",
    "{a} - {b} - {c}",
    "{a} * {b} + {c}",
    "{a} * {b} * {c}",
    "({a} + {b}) * {c}",
    "{a} - ({b} + {c})",
    "{c} * ({a} - {b})",
    "What is {a} + {b} + {c}?",
    "What is {a} plus {b} plus {c}?",
    "What is {a} plus {b} minus {c}?",
    "Add {a}, {b} and {c}.",
    "What is the sum of {a}, {b} and {c}?",
    "Compute {a} + {b} + {c} + {d}.",
    "Calculate ({a} - {b}) * {c}",
    "{a}+{b}+{c}+{d}",
    "Multiply {a} by {b} and add {c}.",
    "Add {a} and {b}, then subtract {c}.",
    "What is the product of {a}, {b} and {c}?",
    "Which is the largest of {a}, {b} and {c}?",
    "What is the average of {a}, {b} and {c}?",
    "total of {a}, {b}, {c} and {d}",
    "Use the calculator: {a} + {b} * {c}",
    "{a}-{b}-{c}",
    "{a}*{b}*{c}",
    "{a} plus {b} plus {c}",
    "{a} and {b} and {c} together?",
    "{a} minus {b} minus {c}",
    "{a} times {b} times {c}",
    "{a} times {b} plus {c}",
    "What is {a} times {b} minus {c}?",
    "What is {a} - {b} * {c}?",
    "Take {b} and {c} away from {a}.",
    "Which is the smallest of {a}, {b} and {c}?",
    "Which is larger, {a} + {b} or {c} + {d}?",
    "Is {a} + {b} more than {c} * {d}?",
    "Add up {a}, {b}, {c} and {d}.",
    "What is the mean of {a} and {b}?",
    "What is the median of {a}, {b}, {c} and {d}?",
    "Subtract {b} from {a} and double the result.",
    "Double {a} and add {b}.",
    "({a}+{b})*({c}+{d})",
    "Tom has {a} apples, buys {b} and eats {c}. How many are left?",
    "A train goes {a} km in {b} minutes. How fast is it?",
    "Each of {c} boxes holds {b} pens and {d} are lost. How many remain?",
    "{c} books at {a} euros and {d} pens at {b} euros: what is the total?",
    "I save {a} a month. How much do I have after {b} months and {c} weeks?",
    "What is the next number in {b}, {a}, {d}?",
    "Continue the sequence {a}, {b}, {d}.",
    "How many ways are there to choose {c} of {a}?",
    "{b} choose {c}",
    "Area of a rectangle of {a} by {b} by {c}",
    "sum of the numbers from {b} to {a}",
};
constexpr std::string_view kDivision[] = {
    "{a}/{b}",
    "{a} / {b}",
    "{a} / {b} =",
    "{a} : {b}",
    "What is {a} / {b}?",
    "What is {a} divided by {b}?",
    "Divide {a} by {b}.",
    "Compute {a} / {b}.",
    "Calculate {a} / {b}",
    "How much is {a} divided by {b}?",
    "How often does {b} go into {a}?",
    "What is the remainder of {a} divided by {b}?",
    "{a} mod {b}",
    "{a} modulo {b}",
    "{a} % {b}",
    "What is half of {a}?",
    "Halve {a}.",
    "half of {a}",
    "a third of {a}",
    "What is a quarter of {a}?",
    "Is {a} divisible by {b}?",
    "Share {a} apples among {b} children.",
    "Split {a} into {b} equal parts.",
    "What is the quotient of {a} and {b}?",
    "Use the calculator: {a} / {b}",
    "Work out {a} / {b} for me.",
    "Can {a} be divided by {b}?",
    "What are the divisors of {a}?",
    "{a} over {b}",
    "{a} divided by {b}",
    "divide {a} by {b}",
    "how many times does {b} fit into {a}",
    "What is left when {a} is divided by {b}?",
    "Is {a} a multiple of {b}?",
    "Name the multiples of {b} below {a}.",
    "What is a tenth of {a}?",
    "two thirds of {a}",
    "{a} shared equally by {b}",
    "Distribute {a} sweets to {b} pupils.",
    "What is {a} div {b}?",
    "{a} by {b}, rounded down",
    "remainder of {a} by {b}",
    "{a}/{b} as a decimal",
    "What is the ratio of {a} to {b}?",
    "Reduce the ratio {a}:{b}.",
    "How much does each get if {b} people share {a} euros?",
};
constexpr std::string_view kPercent[] = {
    "What is {b}% of {a}?",
    "{b}% of {a}",
    "{b} percent of {a}",
    "How much is {b} percent of {a}?",
    "What percentage of {a} is {b}?",
    "Increase {a} by {b}%.",
    "Take {b}% off {a}.",
    "{b} per cent of {a}, please",
    "A price of {a} falls by {b}%. What is it now?",
    "1/{b} + 1/{c}",
    "{c}/{b} + {d}/{a}",
    "What is 1/{b} of {a}?",
    "Write {c}/{b} as a decimal.",
    "Simplify {c}/{a}.",
    "{a}.{b} + {c}.{d}",
    "What is {a}.{c} times {b}?",
    "{a}.{c} - {b}",
    "Round {a}.{b} to a whole number.",
    "Add {a}.{c} and {b}.{d}.",
    "{a},{c} + {b}",
    "Which is larger, {c}.{a} or {c}.{b}?",
    "Is 0.{a} more than 0.{b}?",
    "{a} plus {b}%",
    "{a} minus {b} percent",
    "What is {a} with {b}% tax?",
    "{b}% tip on {a}",
    "{b} percent interest on {a} for {c} years",
    "discount of {b}% on {a}",
    "By how many percent is {a} more than {b}?",
    "Write {b}% as a fraction.",
    "Write {c}/{b} as a percentage.",
    "{c}/{b} - 1/{d}",
    "{c}/{b} * {d}/{a}",
    "What is {c} and a half plus {b}?",
    "{a} and a quarter times {c}",
    "{a}.{b} * {c}",
    "{a}.{b} / {c}",
    "What is {a}.{c} + {b}.{d}?",
    "What is {a}.{c} minus {b}.{d}?",
    "Round {a}.{c}{d} to one decimal place.",
    "Is {a}.{c} a whole number?",
    "0.{b} times {a}",
    ".{c} + .{d}",
    "Which is more, {c}/{b} or {d}/{a}?",
    "{a} EUR + {b}.{c} EUR",
    "$ {a}.{b} plus $ {c}",
};
constexpr std::string_view kPowers[] = {
    "{a} squared",
    "What is {a} squared?",
    "{b}^{c}",
    "{b}**{c}",
    "{b} to the power of {c}",
    "What is {b} to the power {c}?",
    "2^{b}",
    "sqrt({a})",
    "What is the square root of {a}?",
    "square root of {a}",
    "cube root of {a}",
    "What is the cube of {b}?",
    "{b}!",
    "What is {b} factorial?",
    "factorial of {c}",
    "log({a})",
    "What is the logarithm of {a}?",
    "ln {b}",
    "sin({a})",
    "What is the sine of {a}?",
    "cos {a}",
    "Is {a} a prime number?",
    "Is {a} prime?",
    "Which primes are below {a}?",
    "What is the next prime after {a}?",
    "What are the factors of {a}?",
    "Is {a} even or odd?",
    "gcd of {a} and {b}",
    "What is the greatest common divisor of {a} and {b}?",
    "least common multiple of {a} and {b}",
    "Solve x + {b} = {a}.",
    "Solve {c}x = {a} for x.",
    "x + {b} = {a}, what is x?",
    "Convert {a} to binary.",
    "Write {a} as a Roman numeral.",
    "{a} in hexadecimal",
    "What is |-{a}|?",
    "pi times {a}",
    "What is {b} dozen?",
    "How many minutes are {b} hours?",
    "Convert {a} miles to kilometres.",
    "What is {a} to the nearest hundred?",
    "How many digits does {a} have?",
    "What is the digit sum of {a}?",
    "Count from {b} to {a}.",
    "What comes after {a}?",
    "square {a}",
    "{a} cubed",
    "{a}^2",
    "{a} to the fourth",
    "{b} raised to {c}",
    "10^{c}",
    "root of {a}",
    "sqrt {a}",
    "third root of {a}",
    "Is {a} a perfect square?",
    "tan {b}",
    "arcsin {b}",
    "log2({a})",
    "log base {c} of {a}",
    "e^{c}",
    "{c}! / {d}",
    "Fibonacci number {b}",
    "What is the {b}th Fibonacci number?",
    "What is the {b}th prime?",
    "prime factors of {a}",
    "Factorise {a}.",
    "lcm({a}, {b})",
    "gcd({a}, {b})",
    "hcf of {a} and {b}",
    "Solve {c}x + {b} = {a}.",
    "{c}y - {b} = {a}, find y",
    "x^2 = {a}",
    "Differentiate {b}x^{c}.",
    "Integrate {b}x.",
    "{a} in binary",
    "{a} in base {c}",
    "What is 0x{a} in decimal?",
    "{a} in Roman numerals",
    "What is the Roman number for {a}?",
    "XIV + VII",
    "What is MCMXC in digits?",
    "XL plus {b}",
    "abs(-{a})",
    "How many seconds are in {b} minutes?",
    "How many days are {b} weeks?",
    "{a} cm in metres",
    "{a} grams in kilos",
    "Convert {b} degrees Celsius to Fahrenheit.",
    "Convert {a} pounds to kilograms.",
    "{a} feet in metres",
    "How many inches are {b} feet?",
    "{b} kg + {a} g",
    "{c} h {b} min in minutes",
    "What is {c}:30 plus {b} minutes?",
    "What time is it {a} minutes after noon?",
    "How many days are between the {c} of March and the {c} of June?",
    "Which weekday is {b} days after Monday?",
    "What is the date {b} days from today?",
    "How old is someone born in 19{c}?",
    "Round {a} to the nearest ten.",
    "Reverse the digits of {a}.",
    "sum of the digits of {a}",
    "Which digit of {a} is the largest?",
    "Is {a} odd?",
    "Is {b} an even number?",
    "Count backwards from {b}.",
    "Count in steps of {c} up to {a}.",
    "What comes before {a}?",
    "area of a circle with radius {b}",
    "circumference of a circle of diameter {a}",
    "perimeter of a square of side {a}",
    "volume of a cube of side {b}",
    "infinity minus {a}",
    "{a} XOR {b}",
    "{a} AND {b} in binary",
};
constexpr std::string_view kPuzzles[] = {
    "Find an anagram of {w}.",
    "Make an anagram of {w}.",
    "Is {w} a palindrome?",
    "Check whether {w} is a palindrome.",
    "Which words rhyme with {w}?",
    "Remove the vowels from {w}.",
    "{w} without its vowels",
    "How many vowels are in {w}?",
    "How many consonants does {w} have?",
    "How many syllables has {w}?",
    "Translate {w} into pig latin.",
    "Say {w} in pig latin.",
    "Encode {w} with ROT13.",
    "Shift each letter of {w} by one.",
    "Encrypt {w} with a Caesar cipher.",
    "Write {w} in Morse code.",
    "What is {w} in Morse?",
    "Unscramble {w}.",
    "Shuffle the letters of {w}.",
    "What is the third letter of {w}?",
    "What is the last letter of {w}?",
    "Which letter is in the middle of {w}?",
    "Which letter occurs most often in {w}?",
    "Which letters occur twice in {w}?",
    "Replace the {c} in {w} by another letter.",
    "Remove every {c} from {w}.",
    "Repeat {w} three times.",
    "Write {w} in lower case.",
    "Spell {w}.",
    "Spell {w} with the NATO alphabet.",
    "Does {w} contain the letter {c}?",
    "Is there a {c} in {w}?",
    "Does {w} begin with {c}?",
    "Make a sentence with {w}.",
    "Combine {w} and {v}.",
    "Which comes first in the alphabet, {w} or {v}?",
    "Which is longer, {w} or {v}?",
    "Sort the words {w} and {v}.",
    "Reverse {w} and {v}.",
    "Do {w} and {v} share a letter?",
    "Give me a crossword clue for {w}.",
    "Find a word inside {w}.",
    "How many words can you make from {w}?",
    "Is {w} a real word?",
    "anagram of {w}",
    "anagrams of {w}",
    "Are {w} and {v} anagrams?",
    "Is {w} an anagram of {v}?",
    "palindrome or not: {w}",
    "rhymes with {w}",
    "What rhymes with {w}?",
    "Does {w} rhyme with {v}?",
    "vowels in {w}",
    "Count the vowels in {w} {v}.",
    "Which vowels are in {w}?",
    "Count the consonants of {w}.",
    "Name the consonants in {w}.",
    "How many syllables does {w} have?",
    "Split {w} into syllables.",
    "{w} in pig latin",
    "{w} in rot13",
    "Decode {w} from ROT13.",
    "morse code for {w}",
    "{w} in binary code",
    "Write {w} in Braille.",
    "{w} in ASCII codes",
    "What is the first letter of {w}?",
    "What is the second letter of {w}?",
    "first letter of {w}",
    "last letter of {w}",
    "What letter comes after {c} in {w}?",
    "Which position has {c} in {w}?",
    "Where is the first {c} in {w}?",
    "most common letter in {w}",
    "Does {w} have double letters?",
    "Drop the first letter of {w}.",
    "Remove the last letter of {w}.",
    "Delete all {c} from {w}.",
    "Swap the first and last letter of {w}.",
    "Replace every vowel in {w} by {c}.",
    "Put a {c} in front of {w}.",
    "Insert a {c} into {w}.",
    "Write {w} twice.",
    "{w} in lower case",
    "Lower case, please: {w}",
    "Write every second letter of {w}.",
    "Does {w} end with {c}?",
    "Is {w} shorter than {v}?",
    "Does {w} come before {v} in a dictionary?",
    "Put {w} and {v} in alphabetical order.",
    "Join {w} and {v} into one word.",
    "Mix the letters of {w} and {v}.",
    "Which letters do {w} and {v} have in common?",
    "Which letters of the alphabet are missing in {w}?",
    "How many letters do {w} and {v} have together?",
    "How many different letters has {w}?",
    "What is the Scrabble score of {w}?",
    "Write an acrostic of {w}.",
    "Change one letter of {w} to make a new word.",
    "Play hangman with {w}.",
    "Which words hide in {w}?",
    "What number does {w} give if A is 1 and B is 2?",
    "Reverse the order of the words {w} {v}.",
    "Is there a word that begins with {w}?",
    "Number the letters of {w} from the end.",
};

std::string short_number(Draw& draw) {
  const int64_t most[] = {9, 99, kNumberMax};
  return std::to_string(draw.between(1, draw.pick(most)));
}

std::string long_number(Draw& draw) {
  std::string out = std::to_string(draw.between(1, 9));
  for (int64_t more = draw.between(3, draw.percent(70) ? 4 : 8); more > 0; --more)
    out += std::to_string(draw.below(10));
  return draw.percent(90) ? out : out.substr(0, out.size() - 3) + "," + out.substr(out.size() - 3);
}

// 13 to 24 letters: at random, words joined, or one invented.
std::string long_word(Draw& draw) {
  const int64_t least = draw.between(kLettersMax + 1, 20);
  if (draw.percent(45)) {
    const std::string out = invented_word(draw, least, least + 4);
    return draw.percent(25) ? capitals(out) : out;
  }
  std::string out;
  const bool random = draw.percent(50);
  while (std::ssize(out) < least)
    out += random ? std::string(1, static_cast<char>('A' + draw.below(26))) : std::string(draw.pick(words()));
  return !random && draw.percent(50) ? capitals(out) : out;
}

std::string with_numbers(Draw& draw, std::span<const std::string_view> forms) {
  const std::string a = short_number(draw), b = short_number(draw), c = std::to_string(draw.between(2, 12)),
                    d = short_number(draw);
  return fill(draw.pick(forms), {{"a", a}, {"b", b}, {"c", c}, {"d", d}});
}

// A sum whose first or second number, or both, are beyond the range.
std::string sum_of(Draw& draw, std::string (*strange)(Draw&)) {
  std::string a = strange(draw), b = draw.percent(40) ? strange(draw) : short_number(draw);
  if (draw.percent(50)) std::swap(a, b);
  return sum_asked(draw, draw.below(kArithmeticKinds), a, b);
}

std::string named_number(Draw& draw) {
  std::string out = in_words(draw.between(0, draw.percent(70) ? 99 : kNumberMax));
  return draw.percent(10) ? capitals(out) : out;
}

std::string question(Draw& draw) {
  constexpr int64_t kWeights[] = {20, 10, 16, 12, 12, 16, 26, 16, 10};
  switch (draw.weighted(kWeights)) {
    case 0:
      return sum_of(draw, long_number);
    case 1:
      return sum_of(draw, [](Draw& d) { return "-" + short_number(d); });
    case 2:
      return with_numbers(draw, kSeveral);
    case 3:
      return with_numbers(draw, kDivision);
    case 4:
      return with_numbers(draw, kPercent);
    case 5:
      return with_numbers(draw, kPowers);
    case 6: {
      const std::string word = long_word(draw);
      const char wanted = letter_for(draw, capitals(word));
      return puzzle_asked(draw, draw.below(4), word, wanted);
    }
    case 7: {
      const auto word = [&] {
        return draw.percent(50) ? capitals(draw.pick(words())) : std::string(draw.pick(words()));
      };
      const std::string w = word(), v = word(), c(1, static_cast<char>('A' + draw.below(26)));
      return fill(draw.pick(kPuzzles), {{"w", w}, {"v", v}, {"c", c}});
    }
    default:
      return sum_of(draw, named_number);
  }
}

}  // namespace

Turn off_range(Draw& draw) {
  std::string user = question(draw);
  if (draw.percent(20)) user = opened(draw, std::move(user));
  return {.task = "off range",
          .user = typed(draw, std::move(user)),
          .reasoning = "This is beyond my range.",
          .answer = std::string(kBeyondRange)};
}

}  // namespace braid::synth
