#include "text/jinja_interpreter.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "text/jinja_operators.h"
#include "text/jinja_print.h"

namespace braid::text::jinja {

// Redirects output to its own string during its lifetime.
class Interpreter::Capture {
 public:
  explicit Capture(Interpreter& in) : in_(in), outer_(std::exchange(in.out_, &text_)) {}
  ~Capture() { in_.out_ = outer_; }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;
  std::string take() { return std::move(text_); }

 private:
  Interpreter& in_;
  std::string* outer_;
  std::string text_;
};

Interpreter::Interpreter(std::map<std::string, Value, std::less<>> variables, const std::tm& now, const Limits& limits)
    : limits_(limits), now_(now), globals_(std::make_shared<Scope>()) {
  globals_->names = std::move(variables);
}

Interpreter::~Interpreter() {
  for (const auto& space : spaces_) space->attributes.clear();
  for (const auto& scope : kept_) scope->names.clear();
}

std::string Interpreter::run(const Body& body) {
  auto top = std::make_shared<Scope>();
  top->parent = globals_;
  return captured(body, top);
}

void Interpreter::spend(int64_t steps) {
  steps_ += steps;
  if (steps_ > limits_.steps)
    raise_type(fmt::format("the template does not end: stopped after {} steps", limits_.steps));
}

void Interpreter::allocate(int64_t bytes) {
  bytes_ += bytes;
  if (bytes_ > limits_.bytes)
    raise_type(fmt::format("the template does not end: stopped after {} bytes of values", limits_.bytes));
}

void Interpreter::enter() {
  spend(1);
  if (++depth_ > limits_.depth) {
    --depth_;
    raise_type(fmt::format("the template recurses too deeply: stopped at {} levels", limits_.depth));
  }
}

Value Interpreter::charged(Value v) {
  if (!v.fresh()) return v;
  int64_t bytes = v.surface();
  if (v.is(Kind::sequence)) {  // and its items, if created with it: the parts of a split, the pairs of a dict
    for (const Value& item : v.sequence().items) bytes += item.fresh() ? item.surface() : 0;
  }
  allocate(bytes);
  spend(bytes / kBytesPerStep);
  return v;
}

Value Interpreter::make_namespace(const CallArgs& args) {
  auto space = std::make_shared<Namespace>();
  spaces_.push_back(space);
  allocate(256);
  for (const Value& v : args.positional) {
    if (!v.is(Kind::dict)) raise_type(fmt::format("cannot make a namespace of '{}'", type_name(v)));
    for (const auto& [key, value] : v.dict().entries) space->attributes.insert_or_assign(to_text(key), value);
  }
  for (auto& [name, value] : args.named) space->attributes.insert_or_assign(name, value);
  return space;
}

void Interpreter::emit(const std::string& text) {
  if (static_cast<int64_t>(out_->size() + text.size()) > limits_.output_bytes) {
    raise_type(fmt::format("the template writes too much: stopped after {} bytes", limits_.output_bytes));
  }
  spend(static_cast<int64_t>(text.size()) / kBytesPerStep);
  *out_ += text;
}

std::string Interpreter::captured(const Body& body, const ScopePtr& scope) {
  Capture capture(*this);
  exec(body, scope);
  return capture.take();
}

namespace {

ScopePtr child_of(const ScopePtr& parent) {
  auto scope = std::make_shared<Scope>();
  scope->parent = parent;
  return scope;
}

}  // namespace

Interpreter::Flow Interpreter::exec(const Body& body, const ScopePtr& scope) {
  const Deeper deeper(*this);
  for (const Stmt& s : body) {
    line_ = s.line;
    if (const Flow flow = exec(s, scope); flow != Flow::on) return flow;
  }
  return Flow::on;
}

Interpreter::Flow Interpreter::exec(const Stmt& s, const ScopePtr& scope) {
  switch (s.kind) {
    case Stmt::Kind::data:
      emit(s.name);
      break;
    case Stmt::Kind::print: {
      const Value v = eval(*s.expr, scope);
      emit(v.is(Kind::text) ? v.str() : to_text(v));
      break;
    }
    case Stmt::Kind::condition:
      return condition(s, scope);
    case Stmt::Kind::loop:
      return loop(s, scope, eval(*s.expr, scope), 0);
    case Stmt::Kind::set:
      assign(*s.target, eval(*s.expr, scope), *scope, scope);
      break;
    case Stmt::Kind::set_block: {
      Value text = charged(Value(captured(s.body, child_of(scope))));
      if (s.expr) text = eval_filter(*s.expr, scope, &text);
      assign(*s.target, std::move(text), *scope, scope);
      break;
    }
    case Stmt::Kind::macro:
      scope->names.insert_or_assign(s.name, macro(s, scope, s.name));
      break;
    case Stmt::Kind::call_block:
      call_block(s, scope);
      break;
    case Stmt::Kind::filter_block: {
      const Value text = charged(Value(captured(s.body, child_of(scope))));
      emit(to_text(eval_filter(*s.expr, scope, &text)));
      break;
    }
    case Stmt::Kind::with:
      with(s, scope);
      break;
    case Stmt::Kind::scope:
      return exec(s.body, child_of(scope));
    case Stmt::Kind::leave:
      return Flow::leave;
    case Stmt::Kind::skip:
      return Flow::skip;
  }
  return Flow::on;
}

Interpreter::Flow Interpreter::condition(const Stmt& s, const ScopePtr& scope) {
  for (const Branch& branch : s.branches) {
    if (!branch.test || truth(eval(*branch.test, scope))) return exec(branch.body, scope);
  }
  return Flow::on;
}

Interpreter::Flow Interpreter::loop(const Stmt& s, const ScopePtr& scope, const Value& over, int64_t depth0) {
  const Deeper deeper(*this);
  Values items = items_of(over);
  if (const ExprPtr& test = s.branches[0].test) {
    Values kept;
    for (Value& item : items) {
      const ScopePtr inner = child_of(scope);
      assign(*s.target, item, *inner, inner);
      if (truth(eval(*test, inner))) kept.push_back(std::move(item));
    }
    items = std::move(kept);
  }
  if (items.empty()) return s.branches.size() > 1 ? exec(s.branches[1].body, child_of(scope)) : Flow::on;

  const auto state = std::make_shared<Loop>();
  // After the loop nothing may be kept alive through it: nested loop objects would free each other recursively.
  const auto held = static_cast<int64_t>(items.size() * sizeof(Value));
  const auto finish = [this, held](Loop* l) {
    bytes_ -= held;
    l->changed = Value();
    l->recurse = nullptr;
    l->items.clear();
  };
  const std::unique_ptr<Loop, decltype(finish)> ended(state.get(), finish);
  allocate(held);
  spend(over.work());
  state->items = std::move(items);
  state->depth0 = depth0;
  if (s.recursive) {
    state->recurse = [this, &s, scope, depth0](const Value& inner) {
      Capture capture(*this);
      loop(s, scope, inner, depth0 + 1);
      return charged(Value(capture.take()));
    };
  }
  const auto length = static_cast<int64_t>(state->items.size());
  for (state->index0 = 0; state->index0 < length; ++state->index0) {
    const ScopePtr inner = child_of(scope);
    inner->names.emplace("loop", state);
    assign(*s.target, state->items[static_cast<size_t>(state->index0)], *inner, inner);
    if (exec(s.branches[0].body, inner) == Flow::leave) break;
  }
  return Flow::on;
}

void Interpreter::with(const Stmt& s, const ScopePtr& scope) {
  const ScopePtr inner = child_of(scope);
  for (const Param& p : s.params) inner->names.insert_or_assign(p.name, eval(*p.fallback, scope));
  exec(s.body, inner);
}

void Interpreter::call_block(const Stmt& s, const ScopePtr& scope) {
  CallArgs extra;
  extra.named.emplace_back("caller", macro(s, scope, "caller"));
  emit(to_text(eval_call(*s.expr, scope, std::move(extra))));
}

Value Interpreter::macro(const Stmt& s, const ScopePtr& scope, const std::string& name) {
  if (kept_.empty() || kept_.back() != scope) kept_.push_back(scope);
  allocate(512);
  auto callable = std::make_shared<Callable>();
  callable->name = name;
  Values names;
  for (const Param& param : s.params) names.emplace_back(param.name);
  callable->arguments = Value::tuple(std::move(names));
  callable->run = [&s, scope, name](Interpreter& in, CallArgs args) {
    return in.run_macro(s, scope, name, std::move(args));
  };
  return std::shared_ptr<const Callable>(std::move(callable));
}

Value Interpreter::run_macro(const Stmt& s, const ScopePtr& scope, const std::string& name, CallArgs args) {
  const Deeper deeper(*this);
  const ScopePtr inner = child_of(scope);
  for (size_t i = 0; i < s.params.size(); ++i) {
    const std::string& param = s.params[i].name;
    const auto named =
        std::find_if(args.named.begin(), args.named.end(), [&](const auto& a) { return a.first == param; });
    Value value;
    if (i < args.positional.size()) {
      if (named != args.named.end())
        raise_type(fmt::format("macro '{}' got multiple values for argument '{}'", name, param));
      value = std::move(args.positional[i]);
    } else if (named != args.named.end()) {
      value = std::move(named->second);
      args.named.erase(named);
    } else if (s.params[i].fallback) {
      value = eval(*s.params[i].fallback, inner);
    } else {
      value = Value::undefined(fmt::format("parameter '{}' was not provided", param));
    }
    inner->names.insert_or_assign(param, std::move(value));
  }
  bind_extra(s, *inner, name, args);
  return charged(Value(captured(s.body, inner)));
}

// Binds varargs, kwargs and caller of a macro, or raises if it takes none.
void Interpreter::bind_extra(const Stmt& s, Scope& scope, const std::string& name, CallArgs& args) {
  const bool is_caller = s.kind == Stmt::Kind::call_block;
  if (args.positional.size() > s.params.size()) {
    if (!s.takes_more) raise_type(fmt::format("macro '{}' takes not more than {} argument(s)", name, s.params.size()));
  }
  const size_t taken = std::min(args.positional.size(), s.params.size());
  if (s.takes_more) {
    scope.names.insert_or_assign(
        "varargs",
        Value::tuple(Values(args.positional.begin() + static_cast<std::ptrdiff_t>(taken), args.positional.end())));
  }
  if (s.takes_caller && !is_caller) scope.names.insert_or_assign("caller", Value::undefined("No caller defined"));
  auto others = std::make_shared<Dict>();
  for (auto& [key, value] : args.named) {
    if (key == "caller" && s.takes_caller) {
      scope.names.insert_or_assign(key, std::move(value));
    } else if (s.takes_named) {
      others->set(Value(key), std::move(value));
    } else {
      raise_type(fmt::format("macro '{}' takes no keyword argument '{}'", name, key));
    }
  }
  if (s.takes_named) scope.names.insert_or_assign("kwargs", std::shared_ptr<const Dict>(std::move(others)));
}

void Interpreter::assign(const Expr& target, Value value, Scope& scope, const ScopePtr& around) {
  if (target.kind == Expr::Kind::name) {
    scope.names.insert_or_assign(target.name, std::move(value));
  } else if (target.kind == Expr::Kind::member) {
    const Value space = eval_name(target, around);
    if (!space.is(Kind::space)) raise_template("cannot assign attribute on non-namespace object");
    space.space().attributes.insert_or_assign(target.value.str(), std::move(value));
  } else {
    Values items = items_of(value);
    if (items.size() != target.kids.size()) {
      const char* what = items.size() > target.kids.size() ? "too many" : "not enough";
      raise_type(fmt::format("ValueError: {} values to unpack (expected {})", what, target.kids.size()));
    }
    for (size_t i = 0; i < items.size(); ++i) assign(*target.kids[i], std::move(items[i]), scope, around);
  }
}

}  // namespace braid::text::jinja
