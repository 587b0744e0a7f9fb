#include "data/synth/words.h"

#include <algorithm>

namespace braid::synth {
namespace {

constexpr std::string_view kWords[] = {
    "apple",    "arrow",   "autumn",  "badge",   "bamboo",   "banana",  "barrel",  "basket",   "beach",    "beard",
    "beetle",   "bell",    "berry",   "bicycle", "bird",     "blanket", "boat",    "bone",     "book",     "bottle",
    "bowl",     "branch",  "brave",   "bread",   "brick",    "bridge",  "broom",   "brush",    "bucket",   "butter",
    "button",   "cabin",   "cable",   "cactus",  "cake",     "camel",   "camera",  "candle",   "canoe",    "canvas",
    "car",      "carpet",  "carrot",  "castle",  "cat",      "cave",    "cello",   "chair",    "chalk",    "cheese",
    "cherry",   "chess",   "chicken", "child",   "circle",   "city",    "clay",    "clock",    "cloud",    "coach",
    "coal",     "coast",   "coat",    "coffee",  "coin",     "comet",   "copper",  "coral",    "corn",     "cotton",
    "cow",      "crab",    "crane",   "cream",   "cricket",  "crow",    "crown",   "cup",      "curtain",  "dance",
    "deer",     "desert",  "desk",    "diamond", "dinner",   "dog",     "dolphin", "donkey",   "door",     "dragon",
    "dream",    "dress",   "drum",    "duck",    "eagle",    "earth",   "egg",     "elbow",    "engine",   "family",
    "farm",     "feather", "fence",   "field",   "finger",   "fire",    "fish",    "flag",     "flame",    "floor",
    "flour",    "flower",  "flute",   "forest",  "fork",     "fox",     "frog",    "fruit",    "garden",   "garlic",
    "ghost",    "giraffe", "glass",   "glove",   "goat",     "gold",    "goose",   "grape",    "grass",    "guitar",
    "hammer",   "harbor",  "harp",    "hat",     "hawk",     "hedge",   "helmet",  "hill",     "holiday",  "honey",
    "horse",    "hotel",   "house",   "ice",     "insect",   "iron",    "island",  "ivory",    "jacket",   "jam",
    "jewel",    "jungle",  "kettle",  "key",     "king",     "kitchen", "kite",    "knee",     "knife",    "ladder",
    "lake",     "lamp",    "lawn",    "leaf",    "lemon",    "letter",  "library", "light",    "lily",     "lion",
    "lizard",   "lobster", "lock",    "magnet",  "mango",    "map",     "maple",   "marble",   "market",   "mask",
    "meadow",   "melon",   "metal",   "milk",    "mirror",   "monkey",  "moon",    "morning",  "moss",     "motor",
    "mountain", "mouse",   "mud",     "museum",  "music",    "mustard", "napkin",  "needle",   "nest",     "night",
    "nut",      "oak",     "ocean",   "olive",   "onion",    "opera",   "orange",  "orchid",   "otter",    "oven",
    "owl",      "paint",   "palace",  "palm",    "panda",    "paper",   "parrot",  "party",    "pasta",    "peach",
    "peanut",   "pear",    "pebble",  "pen",     "pencil",   "pepper",  "piano",   "picture",  "pigeon",   "pillow",
    "pilot",    "pine",    "pirate",  "pizza",   "planet",   "plate",   "plum",    "pocket",   "poem",     "pond",
    "potato",   "prince",  "pumpkin", "puppet",  "puzzle",   "queen",   "rabbit",  "radio",    "rain",     "rainbow",
    "raven",    "ribbon",  "rice",    "ring",    "river",    "road",    "robot",   "rocket",   "roof",     "root",
    "rope",     "rose",    "ruby",    "saddle",  "sailor",   "salad",   "salmon",  "salt",     "sand",     "school",
    "scissors", "sea",     "seal",    "shadow",  "shark",    "sheep",   "shell",   "ship",     "shirt",    "shoe",
    "silk",     "silver",  "singer",  "sister",  "sky",      "sled",    "smoke",   "snail",    "snake",    "snow",
    "soap",     "soccer",  "sofa",    "soup",    "spider",   "spinach", "spoon",   "spring",   "squirrel", "star",
    "statue",   "steam",   "stone",   "storm",   "street",   "sugar",   "summer",  "sun",      "swan",     "sweater",
    "table",    "tailor",  "tea",     "teacher", "temple",   "tennis",  "tent",    "thunder",  "ticket",   "tiger",
    "toast",    "tomato",  "tower",   "toy",     "tractor",  "train",   "travel",  "treasure", "tree",     "truck",
    "trumpet",  "tulip",   "tunnel",  "turtle",  "umbrella", "valley",  "velvet",  "village",  "violin",   "volcano",
    "wagon",    "wallet",  "walnut",  "water",   "wave",     "weather", "whale",   "wheat",    "wheel",    "whistle",
    "willow",   "wind",    "window",  "winter",  "wolf",     "wood",    "wool",    "yogurt",   "zebra",
};

}  // namespace

std::span<const std::string_view> words() { return kWords; }

std::string invented_word(Draw& draw, int64_t least, int64_t most) {
  constexpr std::string_view kOnsets[] = {"b",  "c",  "d",  "f",  "g",   "h",  "j",  "k",  "l",  "m",  "n",  "p",
                                          "qu", "r",  "s",  "t",  "v",   "w",  "y",  "z",  "bl", "br", "ch", "cl",
                                          "cr", "dr", "fl", "fr", "gl",  "gr", "pl", "pr", "sh", "sc", "sk", "sl",
                                          "sm", "sn", "sp", "st", "str", "sw", "th", "tr", "wh", ""};
  constexpr std::string_view kVowels[] = {"a",  "e",  "i",  "o",  "u",  "a",  "e",  "i", "o",
                                          "ai", "ea", "ee", "ie", "oa", "oo", "ou", "y", "ow"};
  constexpr std::string_view kEnds[] = {"",   "",   "",    "b",  "ck", "d",  "g",  "l",  "ll", "m",
                                        "n",  "nd", "ng",  "nt", "p",  "r",  "rd", "rn", "s",  "ss",
                                        "st", "t",  "tch", "x",  "er", "le", "et", "on", "en", "ly"};
  std::string out;
  int64_t syllables = draw.between(1, 3);
  while (syllables-- > 0 || std::ssize(out) < least)
    out.append(draw.pick(kOnsets)).append(draw.pick(kVowels)).append(draw.pick(kEnds));
  out.resize(std::min(out.size(), static_cast<size_t>(most)));
  return out;
}

}  // namespace braid::synth
