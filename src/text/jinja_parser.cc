#include "text/jinja_parser.h"

#include <fmt/format.h>

#include <utility>

#include "text/jinja_expressions.h"

namespace braid::text::jinja {
namespace {

using Type = Token::Type;
using Names = std::initializer_list<std::string_view>;

class Parser : private ExpressionParser {
 public:
  explicit Parser(std::string_view source) : ExpressionParser(source) {}
  Body run();

 private:
  Body statements(Names ends, std::string_view tag, int line);
  Body block(Names ends, std::string_view tag, int line);
  Stmt statement();
  Stmt condition(int line);
  Stmt loop(int line);
  Stmt set(int line);
  Stmt macro(int line);
  Stmt call_block(int line);
  Stmt filter_block(int line);
  Stmt with(int line);
  Stmt prints(int line);
  Stmt jump(Stmt::Kind kind, int line);
  std::vector<Param> signature();
  ExprPtr target(std::string_view end, bool with_member);
  ExprPtr target_name(bool with_member);
};

Body Parser::run() {
  Body body = statements({}, {}, 1);
  if (now().type != Type::end) fail(fmt::format("unexpected '{}'", describe(now())));
  return body;
}

// Up to a tag among `ends`, which stays the current token (its name); or, without ends, to the end of the template.
Body Parser::statements(Names ends, std::string_view tag, int line) {
  const Nest nest(*this);
  Body body;
  for (;;) {
    const Token& t = now();
    if (t.type == Type::end) {
      if (ends.size() > 0)
        fail(fmt::format("Unexpected end of template; the tag '{}' of line {} is not closed", tag, line));
      return body;
    }
    if (t.type == Type::data) {
      body.push_back({.kind = Stmt::Kind::data, .line = t.line, .name = std::move(take().text)});
    } else if (t.type == Type::print_open) {
      Stmt s{.kind = Stmt::Kind::print, .line = take().line};
      s.expr = tuple(true, false);
      expect(Type::print_close, "end of print statement");
      body.push_back(std::move(s));
    } else {
      expect(Type::tag_open, "a tag");
      if (on_any(ends)) return body;
      body.push_back(statement());
      expect(Type::tag_close, "end of statement block");
    }
  }
}

// A tag's body, from the tag's own end to the name of the closing tag.
Body Parser::block(Names ends, std::string_view tag, int line) {
  skip(":");
  expect(Type::tag_close, "end of statement block");
  return statements(ends, tag, line);
}

Stmt Parser::statement() {
  const int line = now().line;
  const std::string tag = expect_name();
  if (tag == "if") return condition(line);
  if (tag == "for") return loop(line);
  if (tag == "set") return set(line);
  if (tag == "macro") return macro(line);
  if (tag == "call") return call_block(line);
  if (tag == "filter") return filter_block(line);
  if (tag == "with") return with(line);
  if (tag == "print") return prints(line);
  if (tag == "break") return jump(Stmt::Kind::leave, line);
  if (tag == "continue") return jump(Stmt::Kind::skip, line);
  if (tag == "generation") {
    Stmt s{.kind = Stmt::Kind::scope, .line = line};
    s.body = block({"endgeneration"}, tag, line);
    take();
    return s;
  }
  fail(fmt::format("Encountered unknown tag '{}'", tag), line);
}

Stmt Parser::condition(int line) {
  Stmt s{.kind = Stmt::Kind::condition, .line = line};
  const bool dead = std::exchange(may_be_dead_, true);
  for (;;) {
    ExprPtr when = tuple(false, false);
    Body body = block({"elif", "else", "endif"}, "if", line);
    s.branches.push_back({std::move(when), std::move(body)});
    const std::string next = take().text;
    if (next == "elif") continue;
    if (next == "else") {
      s.branches.push_back({nullptr, block({"endif"}, "if", line)});
      take();
    }
    may_be_dead_ = dead;
    return s;
  }
}

Stmt Parser::loop(int line) {
  Stmt s{.kind = Stmt::Kind::loop, .line = line};
  s.target = target("in", false);
  if (!skip_name("in")) fail(fmt::format("expected 'in', got '{}'", describe(now())));
  s.expr = tuple(false, false, "recursive");
  ExprPtr filter = skip_name("if") ? expression() : nullptr;
  s.recursive = skip_name("recursive");
  ++loops_;
  const bool dead = std::exchange(may_be_dead_, false);
  s.branches.push_back({std::move(filter), block({"endfor", "else"}, "for", line)});
  may_be_dead_ = dead;
  --loops_;
  if (take().text == "else") {
    s.branches.push_back({nullptr, block({"endfor"}, "for", line)});
    take();
  }
  return s;
}

Stmt Parser::set(int line) {
  Stmt s{.kind = Stmt::Kind::set, .line = line};
  s.target = target({}, true);
  if (skip("=")) {
    s.expr = tuple(true, false);
    return s;
  }
  s.kind = Stmt::Kind::set_block;
  s.expr = filters(nullptr);
  s.body = block({"endset"}, "set", line);
  take();
  return s;
}

std::vector<Param> Parser::signature() {
  std::vector<Param> params;
  expect("(");
  while (!on(")")) {
    if (!params.empty()) expect(",");
    std::string name = expect_name();
    ExprPtr fallback = skip("=") ? expression() : nullptr;
    if (!fallback && !params.empty() && params.back().fallback) fail("non-default argument follows default argument");
    params.push_back({std::move(name), std::move(fallback)});
  }
  expect(")");
  return params;
}

Stmt Parser::macro(int line) {
  Stmt s{.kind = Stmt::Kind::macro, .line = line, .name = expect_name()};
  Stmt* const outer = std::exchange(macro_, &s);
  const int loops = std::exchange(loops_, 0);
  s.params = signature();
  s.body = block({"endmacro"}, "macro", line);
  take();
  macro_ = outer;
  loops_ = loops;
  return s;
}

Stmt Parser::call_block(int line) {
  Stmt s{.kind = Stmt::Kind::call_block, .line = line};
  if (on("(")) s.params = signature();
  s.expr = expression();
  if (s.expr->kind != Expr::Kind::call) fail("expected call", line);
  const int loops = std::exchange(loops_, 0);
  s.body = block({"endcall"}, "call", line);
  loops_ = loops;
  take();
  return s;
}

Stmt Parser::filter_block(int line) {
  Stmt s{.kind = Stmt::Kind::filter_block, .line = line};
  s.expr = filters(filter(nullptr));
  s.body = block({"endfilter"}, "filter", line);
  take();
  return s;
}

Stmt Parser::with(int line) {
  Stmt s{.kind = Stmt::Kind::with, .line = line};
  while (now().type != Type::tag_close && !on(":")) {
    if (!s.params.empty()) expect(",");
    std::string name = expect_name();
    expect("=");
    s.params.push_back({std::move(name), expression()});
  }
  s.body = block({"endwith"}, "with", line);
  take();
  return s;
}

Stmt Parser::prints(int line) {
  Stmt s{.kind = Stmt::Kind::scope, .line = line};
  while (now().type != Type::tag_close) {
    if (!s.body.empty()) expect(",");
    Stmt one{.kind = Stmt::Kind::print, .line = line};
    one.expr = expression();
    s.body.push_back(std::move(one));
  }
  return s;
}

Stmt Parser::jump(Stmt::Kind kind, int line) {
  if (loops_ == 0) fail("break or continue outside a loop", line);
  return {.kind = kind, .line = line};
}

ExprPtr Parser::target_name(bool with_member) {
  const int line = now().line;
  std::string name = expect_name();
  for (const std::string_view reserved : {"true", "false", "none", "True", "False", "None"}) {
    if (name == reserved) fail(fmt::format("can't assign to '{}'", name), line);
  }
  const bool member = with_member && skip(".");
  ExprPtr e = make(member ? Expr::Kind::member : Expr::Kind::name, line);
  e->name = std::move(name);
  if (member) e->value = Value(expect_name());
  return e;
}

// What a set or a for assigns to: a name, a namespace member, or several separated by commas.
ExprPtr Parser::target(std::string_view end, bool with_member) {
  const Nest nest(*this);
  const int line = now().line;
  ExprPtr first = skip("(") ? target({}, with_member) : nullptr;
  if (first) {
    expect(")");
  } else {
    first = target_name(with_member);
  }
  if (!on(",")) return first;
  ExprPtr all = make(Expr::Kind::tuple, line, std::move(first));
  while (skip(",")) {
    if (on("=") || on(")") || (!end.empty() && on_name(end))) break;
    if (skip("(")) {
      adopt(*all, target({}, with_member));
      expect(")");
    } else {
      adopt(*all, target_name(with_member));
    }
  }
  return all;
}

}  // namespace

Body parse(std::string_view source) { return Parser(source).run(); }

}  // namespace braid::text::jinja
