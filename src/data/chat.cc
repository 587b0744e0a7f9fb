#include "data/chat.h"

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>

#include "sys/check.h"
#include "sys/error.h"

namespace braid::data {
namespace {

using nlohmann::ordered_json;
using Ids = std::vector<int32_t>;

constexpr int64_t kMessagesMax = 10'000;

// The time for strftime_now: fixed, so that the same file always gives the same tokens.
std::tm date() {
  std::tm t{};
  t.tm_year = 126;
  t.tm_mday = 1;
  timegm(&t);
  return t;
}

size_t common(const Ids& a, const Ids& b) { return static_cast<size_t>(std::ranges::mismatch(a, b).in1 - a.begin()); }

class Conversation {
 public:
  Conversation(const ordered_json& line, const text::ChatTemplate& chat, const text::Tokenizer& tokenizer,
               const std::string& where)
      : chat_(chat), tokenizer_(tokenizer), where_(where), variables_(line) {
    const auto more = variables_.find("chat_template_kwargs");
    if (more != variables_.end() && more->is_object()) variables_.update(ordered_json(*more));
    ordered_json& messages = variables_["messages"];
    messages = line.at("messages");
    bool good = messages.is_array() && std::ssize(messages) <= kMessagesMax;
    for (const ordered_json& message : messages) {
      good = good && message.is_object() && message.contains("role") && message["role"].is_string();
      if (good) answers_.push_back(message["role"].get_ref<const std::string&>() == "assistant");
    }
    if (!good) {
      fail(where_, {.what = "'messages' is malformed",
                    .expected = fmt::format("at most {} objects with a 'role'", kMessagesMax)});
    }
  }

  void lose(Thoughts thoughts, uint64_t hash) {
    if (thoughts == Thoughts::stripped) {
      if (!chat_.reads("enable_thinking"))
        fail(where_, {.what = "the chat template has no switch for thinking", .hint = "data.strip_thoughts = 0"});
      strip_thoughts(variables_);
    }
    if (thoughts != Thoughts::cut) return;
    end_of_thought_ = tokenizer_.token_to_id("</think>");
    if (!end_of_thought_) fail(where_, {.what = "the vocabulary has no </think>", .hint = "data.cut_thoughts = 0"});
    if (!cut_last_thought(variables_["messages"], hash)) end_of_thought_.reset();
  }

  // From the last turn back: an earlier turn is trained in an example that begins with its whole text, if there is one.
  std::vector<Example> examples() {
    std::vector<Example> out;
    for (size_t i = answers_.size(); i-- > 0;) {
      if (!answers_[i]) continue;
      Example turn = answer(i);
      const auto longer =
          std::ranges::find_if(out, [&](const Example& e) { return common(turn.ids, e.ids) == turn.ids.size(); });
      if (longer == out.end()) {
        out.push_back(std::move(turn));
      } else {
        std::ranges::transform(turn.trained, longer->trained, longer->trained.begin(), std::bit_or());
      }
    }
    if (out.empty()) fail(where_, {.what = "the conversation has no assistant turn", .expected = "one to train on"});
    return out;
  }

  Example last() {
    if (answers_.empty() || !answers_.back())
      fail(where_, {.what = "the last turn is not the assistant's", .expected = "an answer last"});
    return answer(answers_.size() - 1);
  }

 private:
  // Of the first `count` messages. The others are gone then: who asks goes from the last turn back.
  Ids ids(size_t count, bool prompt) {
    ordered_json& messages = variables_["messages"];
    CHECK(count <= messages.size(), "message {} of {} was dropped", count, messages.size());
    messages.erase(messages.begin() + static_cast<int64_t>(count), messages.end());
    variables_["add_generation_prompt"] = prompt;
    try {
      return tokenizer_.encode(chat_.render(variables_, date()), false, memo_);
    } catch (const text::TemplateError& e) {
      fail(where_, {.what = "the chat template refuses the conversation", .got = printable(e.text())});
    }
  }

  // Turn `i` and all before it; what the turn says is trained.
  Example answer(size_t i) {
    Example example{ids(i + 1, false), {}};
    const size_t begin = answer_begin(i, example.ids), end = answer_end(begin, example.ids);
    example.trained.assign(example.ids.size(), 0);
    const size_t first = i + 1 == answers_.size() ? after_cut(begin, example.ids) : begin;
    std::fill(example.trained.begin() + static_cast<int64_t>(first),
              example.trained.begin() + static_cast<int64_t>(end), uint8_t{1});
    return example;
  }

  // The answer begins where the text continues its generation prompt. Templates that render their last message
  // differently change that prompt; then it begins after the last opening of a turn. A prompt may also open thoughts
  // that the answer closes at once; then it begins where the two diverge, but never inside the text before the turn.
  size_t answer_begin(size_t i, const Ids& whole) {
    const Ids prompt = ids(i, true);
    const size_t begin = common(prompt, whole);
    if (begin == prompt.size()) return begin;
    const size_t before = common(ids(i, false), prompt);
    const auto opening = std::span(prompt).subspan(before);
    const auto rest = std::span(whole).subspan(begin);
    const auto last = std::find_end(rest.begin(), rest.end(), opening.begin(), opening.end());
    if (!opening.empty() && last != rest.end()) {
      return begin + static_cast<size_t>(last - rest.begin()) + opening.size();
    }
    if (begin >= before) return begin;
    fail(where_, {.what = fmt::format("the template changes the text before message {}", i),
                  .hint = "fewer messages, or another template: what the assistant says cannot be located"});
  }

  // A thought that was cut ends where a budget would end it: the model learns what to say then, not to end there.
  size_t after_cut(size_t begin, const Ids& whole) const {
    if (!end_of_thought_) return begin;
    const auto close = std::find(whole.begin() + static_cast<int64_t>(begin), whole.end(), *end_of_thought_);
    return close == whole.end() ? begin : static_cast<size_t>(close - whole.begin()) + 1;
  }

  // Includes the token that ends the turn, not the white space that templates put after it.
  size_t answer_end(size_t begin, const Ids& whole) const {
    size_t end = whole.size();
    while (end > begin && !tokenizer_.is_special(whole[end - 1])) --end;
    if (end == begin) return whole.size();
    const std::string rest = tokenizer_.decode(std::span(whole).subspan(end), false);
    return rest.find_first_not_of(" \t\r\n") == rest.npos ? end : whole.size();
  }

  const text::ChatTemplate& chat_;
  const text::Tokenizer& tokenizer_;
  const std::string& where_;
  ordered_json variables_;
  std::vector<bool> answers_;              // whether a message is the assistant's
  std::optional<int32_t> end_of_thought_;  // of a last answer whose thought was cut
  text::Tokenizer::Memo memo_;
};

}  // namespace

std::string prompt_text(ordered_json variables, const text::ChatTemplate& chat, const std::string& where) {
  variables["add_generation_prompt"] = true;
  try {
    return chat.render(variables, date());
  } catch (const text::TemplateError& e) {
    fail(where, {.what = "the chat template refuses the conversation", .got = printable(e.text())});
  }
}

std::vector<Example> examples_of(const ordered_json& line, const text::ChatTemplate& chat,
                                 const text::Tokenizer& tokenizer, const std::string& where, Thoughts thoughts,
                                 uint64_t hash) {
  Conversation conversation(line, chat, tokenizer, where);
  conversation.lose(thoughts, hash);
  return conversation.examples();
}

Example last_answer_of(const ordered_json& line, const text::ChatTemplate& chat, const text::Tokenizer& tokenizer,
                       const std::string& where) {
  return Conversation(line, chat, tokenizer, where).last();
}

}  // namespace braid::data
