#include "text/jinja_builtins.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>

#include "text/jinja_interpreter.h"
#include "text/jinja_operators.h"
#include "text/jinja_print.h"

namespace braid::text::jinja {

const std::string& Args::text(size_t i) const {
  if (!at[i].is(Kind::text)) raise_type(fmt::format("expected str, got {}", type_name(at[i])));
  return at[i].str();
}

std::string Args::printed(size_t i) const {
  std::string s = to_text(at[i]);
  in.spend(static_cast<int64_t>(s.size()) / kBytesPerStep);
  return s;
}

int64_t Args::whole(size_t i, int64_t fallback) const {
  if (!at[i].given()) return fallback;
  if (at[i].is(Kind::undefined)) raise_undefined(at[i].undefined().why);
  if (!at[i].is_whole()) raise_type(fmt::format("'{}' object cannot be interpreted as an integer", type_name(at[i])));
  return at[i].integer();
}

Value run_builtin(const Builtin& builtin, Interpreter& in, CallArgs args) {
  in.spend(1);
  for (size_t i = 0; i < args.positional.size(); ++i) {
    const Value& v = args.positional[i];  // the first is iterated over once, the others may be compared as a whole
    in.spend(i == 0 ? v.work() : v.weight() / kBytesPerStep);
  }
  Args bound{.in = in, .at = {}};
  size_t used = 0;
  bool more = false, named = false;
  for (std::string_view rest = builtin.params; !rest.empty();) {
    std::string_view name = rest.substr(0, rest.find(' '));
    rest.remove_prefix(std::min(rest.size(), name.size() + 1));
    more |= name == "*";
    named |= name == "**";
    if (name[0] == '*') continue;
    const bool optional = name.ends_with('?');
    if (optional) name.remove_suffix(1);
    const auto given =
        std::find_if(args.named.begin(), args.named.end(), [&](const auto& a) { return a.first == name; });
    if (given != args.named.end()) {
      if (used < args.positional.size())
        raise_type(fmt::format("{}() got multiple values for argument '{}'", builtin.name, name));
      bound.at.push_back(std::move(given->second));
      args.named.erase(given);
    } else if (used < args.positional.size()) {
      bound.at.push_back(std::move(args.positional[used++]));
    } else if (optional) {
      bound.at.emplace_back();
    } else {
      raise_type(fmt::format("{}() missing required argument '{}'", builtin.name, name));
    }
  }
  if (used < args.positional.size() && !more)
    raise_type(fmt::format("{}() takes at most {} arguments", builtin.name, bound.at.size()));
  if (!args.named.empty() && !named) {
    raise_type(
        fmt::format("{}() got an unexpected keyword argument '{}'", builtin.name, printable(args.named[0].first)));
  }
  bound.rest.assign(args.positional.begin() + static_cast<std::ptrdiff_t>(used), args.positional.end());
  bound.named = std::move(args.named);
  return in.charged(builtin.run(bound));
}

Value as_value(const Builtin& builtin) {
  auto callable = std::make_shared<Callable>();
  callable->name = std::string(builtin.name);
  callable->run = [&builtin](Interpreter& in, CallArgs args) { return run_builtin(builtin, in, std::move(args)); };
  return std::shared_ptr<const Callable>(std::move(callable));
}

Value as_value(const Builtin& builtin, const Value& self) {
  auto callable = std::make_shared<Callable>();
  callable->name = std::string(builtin.name);
  callable->depth = self.depth() + 1;
  callable->run = [&builtin, self](Interpreter& in, CallArgs args) {
    args.positional.insert(args.positional.begin(), self);
    return run_builtin(builtin, in, std::move(args));
  };
  return std::shared_ptr<const Callable>(std::move(callable));
}

namespace {

constexpr int64_t kRangeMax = 100'000;  // items, as in the reference sandbox

Value range(Args& a) {
  const bool single = !a[1].given();
  const int64_t start = single ? 0 : a.whole(0, 0), stop = single ? a.whole(0, 0) : a.whole(1, 0), step = a.whole(2, 1);
  if (step == 0) raise_type("range() arg 3 must not be zero");
  Values items;
  for (int64_t i = start; step > 0 ? i < stop : i > stop;) {
    if (static_cast<int64_t>(items.size()) == kRangeMax)
      raise_type(fmt::format("OverflowError: range of more than {} items", kRangeMax));
    items.emplace_back(i);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return Value::range(std::move(items), start, stop, step);
}

Value dict(Args& a) {
  auto made = std::make_shared<Dict>();
  if (a[0].given()) {
    if (a[0].is(Kind::dict)) {
      *made = a[0].dict();
    } else {
      for (const Value& pair : items_of(a[0])) {
        const Values both = items_of(pair);
        if (both.size() != 2) raise_type("ValueError: a pair is needed for each entry of a dict");
        made->set(both[0], both[1]);
      }
    }
  }
  for (auto& [name, value] : a.named) made->set(Value(name), value);
  return std::shared_ptr<const Dict>(std::move(made));
}

Value make_namespace(Args& a) { return a.in.make_namespace({std::move(a.rest), std::move(a.named)}); }

Value raise_exception(Args& a) { raise_template(to_text(a[0])); }

// Only the conversion letter reaches the C library: a width of a billion does not.
Value strftime_now(Args& a) {
  const std::string& format = a.text(0);
  std::string out;
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%' || i + 1 == format.size()) {
      out += format[i];
      continue;
    }
    std::string one = "%";
    if (format[i + 1] == '-' && i + 2 < format.size()) one += format[++i];
    one += format[++i];
    char buffer[128];
    if (one.back() == 'f') {
      out += "000000";  // the clock has no microseconds
    } else if (one.back() != 'z' && one.back() != 'Z' &&
               static_cast<unsigned char>(one.back()) < 0x80) {  // the clock has no zone
      out.append(buffer, std::strftime(buffer, sizeof buffer, one.c_str(), &a.in.now()));
    }
  }
  return Value(std::move(out));
}

Value joiner(Args& a) {
  auto callable = std::make_shared<Callable>();
  callable->name = "joiner";
  callable->depth = a[0].depth() + 1;
  callable->run = [first = std::make_shared<bool>(true), sep = a[0].given() ? a[0] : Value(", ")](
                      Interpreter&, const CallArgs&) { return std::exchange(*first, false) ? Value("") : sep; };
  return std::shared_ptr<const Callable>(std::move(callable));
}

// A namespace, whose members its methods change; the interpreter clears it, so they may refer to it.
Value cycler(Args& a) {
  if (a.rest.empty()) raise_type("RuntimeError: at least one item has to be provided");
  const Values items = std::move(a.rest);
  const Value made = a.in.make_namespace({});
  const auto set_to = [made, items](size_t pos) {
    made.space().attributes.insert_or_assign("pos", Value(static_cast<int64_t>(pos)));
    made.space().attributes.insert_or_assign("current", items[pos]);
  };
  const auto add = [&](const char* name, std::function<Value()> run) {
    auto callable = std::make_shared<Callable>();
    callable->name = name;
    callable->run = [run = std::move(run)](Interpreter&, const CallArgs&) { return run(); };
    made.space().attributes.insert_or_assign(name, Value(std::shared_ptr<const Callable>(std::move(callable))));
  };
  auto at = std::make_shared<size_t>(0);
  add("next", [at, set_to, items] {
    const size_t now = *at;
    set_to(*at = (now + 1) % items.size());
    return items[now];
  });
  add("reset", [at, set_to] {
    set_to(*at = 0);
    return Value::none();
  });
  made.space().attributes.insert_or_assign("items", Value::tuple(items));
  set_to(0);
  return made;
}

constexpr Builtin kGlobals[] = {
    {"range", "start stop? step?", range},
    {"dict", "value? **", dict},
    {"namespace", "* **", make_namespace},
    {"joiner", "sep?", joiner},
    {"cycler", "*", cycler},
    {"raise_exception", "message", raise_exception},
    {"strftime_now", "format", strftime_now},
};

}  // namespace

const Builtin* find_global(std::string_view name) { return find_row(kGlobals, name); }

}  // namespace braid::text::jinja
