#include "text/jinja_expressions.h"

#include <fmt/format.h>

#include <iterator>

#include "text/jinja_builtins.h"

namespace braid::text::jinja {
namespace {

constexpr int kNestMax = 200;         // blocks in blocks, brackets in brackets
constexpr int kDepthMaxOfTree = 400;  // a + b + c + ... is a left-deep tree, one level per term

using Type = Token::Type;

}  // namespace

std::string describe(const Token& t) {
  switch (t.type) {
    case Type::data:
      return "template text";
    case Type::print_open:
      return "{{";
    case Type::print_close:
      return "end of print statement";
    case Type::tag_open:
      return "{%";
    case Type::tag_close:
      return "end of statement block";
    case Type::end:
      return "end of template";
    default:
      return t.text;
  }
}

void ExpressionParser::enter() {
  if (++nest_ > kNestMax) fail(fmt::format("blocks or brackets are nested more than {} deep", kNestMax));
}

void ExpressionParser::check_depth(const Expr& e) const {
  if (e.depth > kDepthMaxOfTree) fail(fmt::format("an expression of more than {} levels", kDepthMaxOfTree), e.line);
}

void ExpressionParser::expect(std::string_view op) {
  if (!skip(op)) fail(fmt::format("expected '{}', got '{}'", op, describe(now())));
}

void ExpressionParser::expect(Type type, std::string_view what) {
  if (now().type != type) fail(fmt::format("expected {}, got '{}'", what, describe(now())));
  take();
}

std::string ExpressionParser::expect_name() {
  if (now().type != Type::name) fail(fmt::format("expected a name, got '{}'", describe(now())));
  return take().text;
}

const Builtin* ExpressionParser::known(const Builtin* found, std::string_view what, const std::string& name,
                                       int line) const {
  if (!found && !may_be_dead_) fail(fmt::format("No {} named '{}'", what, name), line);
  return found;
}

ExprPtr ExpressionParser::tuple(bool with_conditional, bool parenthesised, std::string_view end) {
  const int line = now().line;
  const auto ends = [&] {
    const Type t = now().type;
    return t == Type::print_close || t == Type::tag_close || t == Type::end || on(")") ||
           (!end.empty() && on_name(end));
  };
  if (ends()) {
    if (!parenthesised) fail(fmt::format("Expected an expression, got '{}'", describe(now())));
    return make(Expr::Kind::tuple, line);
  }
  ExprPtr first = expression(with_conditional);
  if (!on(",")) return first;
  ExprPtr all = make(Expr::Kind::tuple, line, std::move(first));
  while (skip(",") && !ends()) adopt(*all, expression(with_conditional));
  return all;
}

ExprPtr ExpressionParser::expression(bool with_conditional) {
  const Nest nest(*this);
  ExprPtr e = logical_or();
  while (with_conditional && on_name("if")) {
    const int line = take().line;
    const bool dead = std::exchange(may_be_dead_, true);
    ExprPtr when = logical_or();
    ExprPtr otherwise = skip_name("else") ? expression() : nullptr;
    may_be_dead_ = dead;
    e = make(Expr::Kind::conditional, line, std::move(when), std::move(e), std::move(otherwise));
  }
  return e;
}

ExprPtr ExpressionParser::logical_or() {
  ExprPtr e = logical_and();
  while (on_name("or")) {
    const int line = take().line;
    ExprPtr right = logical_and();
    e = make(Expr::Kind::logical_or, line, std::move(e), std::move(right));
  }
  return e;
}

ExprPtr ExpressionParser::logical_and() {
  ExprPtr e = logical_not();
  while (on_name("and")) {
    const int line = take().line;
    ExprPtr right = logical_not();
    e = make(Expr::Kind::logical_and, line, std::move(e), std::move(right));
  }
  return e;
}

ExprPtr ExpressionParser::logical_not() {
  if (!on_name("not")) return comparison();
  const Nest nest(*this);
  const int line = take().line;
  return make(Expr::Kind::logical_not, line, logical_not());
}

ExprPtr ExpressionParser::comparison() {
  ExprPtr first = sum();
  ExprPtr all;
  for (;;) {
    std::string op;
    constexpr std::string_view kOps[] = {"==", "!=", "<", "<=", ">", ">="};
    if (now().type == Type::op && std::find(std::begin(kOps), std::end(kOps), now().text) != std::end(kOps)) {
      op = take().text;
    } else if (skip_name("in")) {
      op = "in";
    } else if (on_name("not") && ahead().type == Type::name && ahead().text == "in") {
      take();
      take();
      op = "not in";
    } else {
      return all ? std::move(all) : std::move(first);
    }
    if (!all) {
      const int line = first->line;
      all = make(Expr::Kind::compare, line, std::move(first));
    }
    adopt(*all, sum());
    all->keywords.push_back(std::move(op));
  }
}

ExprPtr ExpressionParser::sum() {
  ExprPtr e = concat();
  while (on("+") || on("-")) {
    const Token op = take();
    ExprPtr right = concat();
    e = make(Expr::Kind::binary, op.line, std::move(e), std::move(right));
    e->name = op.text;
  }
  return e;
}

ExprPtr ExpressionParser::concat() {
  ExprPtr e = product();
  if (!on("~")) return e;
  const int line = e->line;
  ExprPtr all = make(Expr::Kind::concat, line, std::move(e));
  while (skip("~")) adopt(*all, product());
  return all;
}

ExprPtr ExpressionParser::product() {
  ExprPtr e = power();
  while (on("*") || on("/") || on("//") || on("%")) {
    const Token op = take();
    ExprPtr right = power();
    e = make(Expr::Kind::binary, op.line, std::move(e), std::move(right));
    e->name = op.text;
  }
  return e;
}

ExprPtr ExpressionParser::power() {
  ExprPtr e = unary();
  while (on("**")) {
    const Token op = take();
    ExprPtr right = unary();
    e = make(Expr::Kind::binary, op.line, std::move(e), std::move(right));
    e->name = op.text;
  }
  return e;
}

ExprPtr ExpressionParser::unary(bool with_filter) {
  const Nest nest(*this);
  ExprPtr e;
  if (on("-") || on("+")) {
    const Token op = take();
    e = make(op.text == "-" ? Expr::Kind::negate : Expr::Kind::plus, op.line, unary(false));
  } else {
    e = primary();
  }
  e = postfix(std::move(e));
  return with_filter ? filtered(std::move(e)) : std::move(e);
}

ExprPtr ExpressionParser::primary() {
  const int line = now().line;
  if (now().type == Type::name) {
    ExprPtr e = make(Expr::Kind::name, line);
    e->name = take().text;
    if (e->name == "true" || e->name == "True" || e->name == "false" || e->name == "False") {
      e->kind = Expr::Kind::constant;
      e->value = Value(e->name == "true" || e->name == "True");
    } else if (e->name == "none" || e->name == "None") {
      e->kind = Expr::Kind::constant;
      e->value = Value::none();
    } else if (macro_ != nullptr) {
      macro_->takes_more |= e->name == "varargs";
      macro_->takes_named |= e->name == "kwargs";
      macro_->takes_caller |= e->name == "caller";
    }
    return e;
  }
  if (now().type == Type::constant) {
    ExprPtr e = make(Expr::Kind::constant, line);
    e->value = take().value;
    if (e->value.is(Kind::text) && now().type == Type::constant && now().value.is(Kind::text)) {
      std::string joined = e->value.str();  // "a" "b" is "ab"
      while (now().type == Type::constant && now().value.is(Kind::text)) joined += take().value.str();
      e->value = Value(std::move(joined));
    }
    return e;
  }
  if (skip("(")) {
    ExprPtr e = tuple(true, true);
    expect(")");
    return e;
  }
  if (on("[")) return list();
  if (on("{")) return dict();
  fail(fmt::format("unexpected '{}'", describe(now())));
}

ExprPtr ExpressionParser::list() {
  ExprPtr e = make(Expr::Kind::list, take().line);
  while (!on("]")) {
    if (!e->kids.empty()) expect(",");
    if (on("]")) break;
    adopt(*e, expression());
  }
  expect("]");
  return e;
}

ExprPtr ExpressionParser::dict() {
  ExprPtr e = make(Expr::Kind::dict, take().line);
  while (!on("}")) {
    if (!e->kids.empty()) expect(",");
    if (on("}")) break;
    adopt(*e, expression());
    expect(":");
    adopt(*e, expression());
  }
  expect("}");
  return e;
}

ExprPtr ExpressionParser::postfix(ExprPtr e) {
  for (;;) {
    if (on(".") || on("[")) {
      e = subscript(std::move(e));
    } else if (on("(")) {
      e = call(std::move(e));
    } else {
      return e;
    }
  }
}

ExprPtr ExpressionParser::filtered(ExprPtr e) {
  for (;;) {
    if (on("|")) {
      e = filters(std::move(e));
    } else if (on_name("is")) {
      e = test(std::move(e));
    } else if (on("(")) {
      e = call(std::move(e));
    } else {
      return e;
    }
  }
}

ExprPtr ExpressionParser::subscript(ExprPtr object) {
  const Token open = take();
  if (open.text == ".") {
    const Token t = take();
    if (t.type == Type::name) {
      ExprPtr e = make(Expr::Kind::attribute, open.line, std::move(object));
      e->value = Value(t.text);
      return e;
    }
    if (t.type != Type::constant || !t.value.is(Kind::integer)) fail("expected name or number", t.line);
    ExprPtr key = make(Expr::Kind::constant, t.line);
    key->value = t.value;
    return make(Expr::Kind::item, open.line, std::move(object), std::move(key));
  }
  const auto bound = [this] { return on(":") || on("]") ? nullptr : expression(); };
  ExprPtr first = bound();
  if (!on(":")) {
    if (!first) fail("an index is missing", open.line);
    if (on(",")) {
      first = make(Expr::Kind::tuple, open.line, std::move(first));
      while (skip(",") && !on("]")) adopt(*first, expression());
    }
    expect("]");
    return make(Expr::Kind::item, open.line, std::move(object), std::move(first));
  }
  take();
  ExprPtr second = bound();
  ExprPtr third = skip(":") ? bound() : nullptr;
  expect("]");
  return make(Expr::Kind::slice, open.line, std::move(object), std::move(first), std::move(second), std::move(third));
}

void ExpressionParser::arguments(Expr& e) {
  expect("(");
  std::string_view last;  // kind of the previous argument: positional ones come first, then named, then spread
  for (bool more = !on(")"); more; more = skip(",") && !on(")")) {
    std::string keyword;
    if (skip("*")) {
      keyword = "*";
    } else if (skip("**")) {
      keyword = "**";
    } else if (now().type == Type::name && ahead().type == Type::op && ahead().text == "=") {
      keyword = take().text;
      take();
    }
    const bool ordered = last == "**" ? false : last.empty() || !keyword.empty();
    if (!ordered || (keyword == "*" && last == "*")) fail("invalid syntax for function call expression");
    last = keyword == "*" || keyword == "**" ? std::string_view(keyword == "*" ? "*" : "**")
           : keyword.empty()                 ? last
                                             : "named";
    e.keywords.push_back(std::move(keyword));
    adopt(e, expression());
  }
  expect(")");
}

ExprPtr ExpressionParser::call(ExprPtr callee) {
  ExprPtr e = make(Expr::Kind::call, now().line, std::move(callee));
  arguments(*e);
  return e;
}

std::string ExpressionParser::dotted_name() {
  std::string name = expect_name();
  while (skip(".")) name += "." + expect_name();
  return name;
}

// After the bar: one filter with its arguments.
ExprPtr ExpressionParser::filter(ExprPtr value) {
  const int line = now().line;
  ExprPtr e = make(Expr::Kind::filter, line, std::move(value));
  e->name = dotted_name();
  e->builtin = known(find_filter(e->name), "filter", e->name, line);
  if (on("(")) arguments(*e);
  return e;
}

ExprPtr ExpressionParser::filters(ExprPtr value) {
  while (skip("|")) value = filter(std::move(value));
  return value;
}

ExprPtr ExpressionParser::test(ExprPtr value) {
  const int line = take().line;  // is
  const bool inverted = skip_name("not");
  ExprPtr e = make(Expr::Kind::test, line, std::move(value));
  e->name = dotted_name();
  e->builtin = known(find_test(e->name), "test", e->name, line);
  const bool operand = now().type == Type::name || now().type == Type::constant || on("[") || on("{");
  if (on("(")) {
    arguments(*e);
  } else if (operand && !on_any({"else", "or", "and"})) {
    if (on_name("is")) fail("You cannot chain multiple tests with is");
    e->keywords.emplace_back();
    adopt(*e, postfix(primary()));
  }
  return inverted ? make(Expr::Kind::logical_not, line, std::move(e)) : std::move(e);
}

}  // namespace braid::text::jinja
