// Expressions: the other half of the interpreter (jinja_interpreter.cc has the statements).
#include <fmt/format.h>

#include <algorithm>

#include "text/jinja_interpreter.h"
#include "text/jinja_operators.h"
#include "text/jinja_print.h"

namespace braid::text::jinja {

Value Interpreter::eval(const Expr& e, const ScopePtr& scope) {
  const Deeper deeper(*this);
  line_ = e.line;
  const auto kid = [&](size_t i) { return eval(*e.kids[i], scope); };
  const auto kids = [&] {
    Values all;
    all.reserve(e.kids.size());
    for (const ExprPtr& k : e.kids) all.push_back(eval(*k, scope));
    return all;
  };
  switch (e.kind) {
    case Expr::Kind::constant:
      return e.value;
    case Expr::Kind::name:
      return eval_name(e, scope);
    case Expr::Kind::list:
      return charged(Value::list(kids()));
    case Expr::Kind::tuple:
      return charged(Value::tuple(kids()));
    case Expr::Kind::dict:
      return eval_dict(e, scope);
    case Expr::Kind::attribute: {
      const Value object = kid(0);
      line_ = e.line;
      return get_attribute(object, e.value);
    }
    case Expr::Kind::item: {
      const Value object = kid(0), key = kid(1);
      line_ = e.line;
      spend((key.weight() + (object.is(Kind::text) ? object.weight() : 0)) / kBytesPerStep);
      return get_item(object, key);
    }
    case Expr::Kind::slice:
      return eval_slice(e, scope);
    case Expr::Kind::call:
      return eval_call(e, scope);
    case Expr::Kind::filter:
      return eval_filter(e, scope, nullptr);
    case Expr::Kind::test:
      return apply(e, scope, "test", kid(0));
    case Expr::Kind::negate:
      return negate(kid(0));
    case Expr::Kind::plus:
      return plus(kid(0));
    case Expr::Kind::binary:
      return eval_binary(e, scope);
    case Expr::Kind::concat:
      return eval_concat(kids());
    case Expr::Kind::compare:
      return eval_compare(e, scope);
    case Expr::Kind::logical_and: {
      Value left = kid(0);
      return truth(left) ? kid(1) : left;
    }
    case Expr::Kind::logical_or: {
      Value left = kid(0);
      return truth(left) ? left : kid(1);
    }
    case Expr::Kind::logical_not:
      return !truth(kid(0));
    case Expr::Kind::conditional:
      if (truth(kid(0))) return kid(1);
      return e.kids[2]
                 ? kid(2)
                 : Value::undefined("the inline if-expression evaluated to false and no else section was defined.");
    case Expr::Kind::member:
      break;  // a target, never evaluated
  }
  return {};
}

Value Interpreter::eval_name(const Expr& e, const ScopePtr& scope) {
  for (const Scope* s = scope.get(); s != nullptr; s = s->parent.get()) {
    if (const auto it = s->names.find(e.name); it != s->names.end()) return it->second;
  }
  if (const Builtin* global = find_global(e.name)) return as_value(*global);
  return Value::undefined(fmt::format("'{}' is undefined", printable(e.name)));
}

Value Interpreter::eval_dict(const Expr& e, const ScopePtr& scope) {
  auto dict = std::make_shared<Dict>();
  for (size_t i = 0; i + 1 < e.kids.size(); i += 2) {
    const Value key = eval(*e.kids[i], scope);
    spend(key.weight() / kBytesPerStep);
    dict->set(key, eval(*e.kids[i + 1], scope));
  }
  return charged(std::shared_ptr<const Dict>(std::move(dict)));
}

Value Interpreter::eval_slice(const Expr& e, const ScopePtr& scope) {
  const Value object = eval(*e.kids[0], scope);
  Value bounds[3];
  for (size_t i = 0; i < 3; ++i) {
    if (e.kids[i + 1]) bounds[i] = eval(*e.kids[i + 1], scope);
  }
  line_ = e.line;
  spend(object.work());
  return charged(slice(object, bounds[0], bounds[1], bounds[2]));
}

Value Interpreter::eval_concat(const Values& parts) {
  std::string all;
  for (const Value& v : parts) {
    all += to_text(v);
    checked_size(static_cast<int64_t>(all.size()), 1);
  }
  return charged(Value(std::move(all)));
}

Value Interpreter::eval_binary(const Expr& e, const ScopePtr& scope) {
  const Value left = eval(*e.kids[0], scope);
  const Value right = eval(*e.kids[1], scope);
  line_ = e.line;
  return charged(binary(e.name, left, right));
}

bool Interpreter::eval_compare(const Expr& e, const ScopePtr& scope) {
  Value left = eval(*e.kids[0], scope);
  for (size_t i = 1; i < e.kids.size(); ++i) {
    Value right = eval(*e.kids[i], scope);
    line_ = e.line;
    const bool searches = e.keywords[i - 1].ends_with("in");
    const int64_t touched = !searches              ? std::min(left.weight(), right.weight())
                            : right.is(Kind::dict) ? left.weight()
                                                   : right.weight();
    spend(touched / kBytesPerStep);
    if (!compare(e.keywords[i - 1], left, right)) return false;
    left = std::move(right);
  }
  return true;
}

// The arguments of a call, filter or test, which follow kids[0].
void Interpreter::gather(const Expr& e, const ScopePtr& scope, CallArgs& args) {
  for (size_t i = 0; i < e.keywords.size(); ++i) {
    Value v = eval(*e.kids[i + 1], scope);
    const std::string& keyword = e.keywords[i];
    if (keyword.empty()) {
      args.positional.push_back(std::move(v));
    } else if (keyword == "*") {
      for (Value& item : items_of(v)) args.positional.push_back(std::move(item));
    } else if (keyword == "**") {
      if (!v.is(Kind::dict)) raise_type(fmt::format("argument after ** must be a mapping, not {}", type_name(v)));
      for (const auto& [key, value] : v.dict().entries) args.named.emplace_back(to_text(key), value);
    } else {
      args.named.emplace_back(keyword, std::move(v));
    }
  }
  line_ = e.line;
}

Value Interpreter::call(const Value& callee, CallArgs args) {
  if (callee.is(Kind::undefined)) {
    if (callee.undefined().unsafe) raise_template(callee.undefined().why);
    raise_undefined(callee.undefined().why);
  }
  if (callee.is(Kind::callable)) return callee.callable().run(*this, std::move(args));
  if (callee.is(Kind::loop)) {
    if (!callee.loop().recurse) raise_type("The loop must have the 'recursive' marker to be called recursively.");
    if (args.positional.size() != 1) raise_type("a recursive loop takes one argument");
    const auto recurse = callee.loop().recurse;  // a copy: the loop may end during the call
    return recurse(args.positional[0]);
  }
  raise_type(fmt::format("'{}' object is not callable", type_name(callee)));
}

Value Interpreter::eval_call(const Expr& e, const ScopePtr& scope, CallArgs extra) {
  CallArgs args;
  const Expr& callee = *e.kids[0];
  Value object, function;
  const Builtin* method = nullptr;
  if (callee.kind == Expr::Kind::attribute) {  // x.method(...): no need to create a function value first
    object = eval(*callee.kids[0], scope);
    line_ = callee.line;
    method = find_method(object, callee.value.str());
    if (method == nullptr) function = get_attribute(object, callee.value);
  } else {
    function = eval(callee, scope);
  }
  if (method != nullptr) args.positional.push_back(object);
  gather(e, scope, args);
  for (auto& named : extra.named) args.named.push_back(std::move(named));
  if (method == nullptr) return charged(call(function, std::move(args)));
  return run_builtin(*method, *this, std::move(args));
}

Value Interpreter::apply(const Expr& e, const ScopePtr& scope, const char* what, Value subject) {
  if (e.builtin == nullptr) raise_template(fmt::format("No {} named '{}' found.", what, e.name));
  CallArgs args;
  args.positional.push_back(std::move(subject));
  gather(e, scope, args);
  return run_builtin(*e.builtin, *this, std::move(args));
}

// `block`: the text of a filter or set block, the input of a chain of filters without a value.
Value Interpreter::eval_filter(const Expr& e, const ScopePtr& scope, const Value* block) {
  const ExprPtr& inner = e.kids[0];
  if (!inner) return apply(e, scope, "filter", *block);
  if (block != nullptr && inner->kind == Expr::Kind::filter) {
    const Deeper deeper(*this);
    return apply(e, scope, "filter", eval_filter(*inner, scope, block));
  }
  return apply(e, scope, "filter", eval(*inner, scope));
}

}  // namespace braid::text::jinja
