// Expressions of a template, by recursive descent: the half of the parser without tags. Recursion is bounded here for
// both halves, so that no template can exhaust the stack while it is parsed, run or freed.
#pragma once
#include <algorithm>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja_ast.h"
#include "text/jinja_lexer.h"

namespace braid::text::jinja {

class ExpressionParser {
 protected:
  explicit ExpressionParser(std::string_view source) : tokens_(tokenize(source)) {}
  // One level of recursion.
  struct Nest {
    explicit Nest(ExpressionParser& p) : parser(p) { parser.enter(); }
    ~Nest() { --parser.nest_; }
    ExpressionParser& parser;
  };

  const Token& now() const { return tokens_[at_]; }
  const Token& ahead() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  Token& take() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }
  bool on(std::string_view op) const { return now().type == Token::Type::op && now().text == op; }
  bool on_name(std::string_view name) const { return now().type == Token::Type::name && now().text == name; }
  bool on_any(std::initializer_list<std::string_view> names) const {
    return now().type == Token::Type::name && std::find(names.begin(), names.end(), now().text) != names.end();
  }
  bool skip(std::string_view op) { return on(op) && (take(), true); }
  bool skip_name(std::string_view name) { return on_name(name) && (take(), true); }
  [[noreturn]] void fail(std::string text, int line = 0) const {
    throw SyntaxError{std::move(text), line > 0 ? line : now().line};
  }
  void expect(std::string_view op);
  void expect(Token::Type type, std::string_view what);
  std::string expect_name();

  // expressions, lowest precedence first
  ExprPtr expression(bool with_conditional = true);
  ExprPtr tuple(bool with_conditional, bool parenthesised, std::string_view end = {});
  ExprPtr logical_or();
  ExprPtr logical_and();
  ExprPtr logical_not();
  ExprPtr comparison();
  ExprPtr sum();
  ExprPtr concat();
  ExprPtr product();
  ExprPtr power();
  ExprPtr unary(bool with_filter = true);
  ExprPtr primary();
  ExprPtr postfix(ExprPtr e);
  ExprPtr filtered(ExprPtr e);
  ExprPtr subscript(ExprPtr object);
  ExprPtr call(ExprPtr callee);
  ExprPtr filter(ExprPtr value);
  ExprPtr filters(ExprPtr value);
  ExprPtr test(ExprPtr value);
  ExprPtr list();
  ExprPtr dict();
  void arguments(Expr& e);
  std::string dotted_name();
  const Builtin* known(const Builtin* found, std::string_view what, const std::string& name, int line) const;

  template <class... Kids>
  ExprPtr make(Expr::Kind kind, int line, Kids... kids) {
    auto e = std::make_unique<Expr>();
    e->kind = kind;
    e->line = line;
    (adopt(*e, std::move(kids)), ...);
    return e;
  }
  void enter();
  void check_depth(const Expr& e) const;
  void adopt(Expr& e, ExprPtr kid) {
    if (kid) e.depth = std::max(e.depth, kid->depth + 1);
    e.kids.push_back(std::move(kid));
    check_depth(e);
  }

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int nest_ = 0;
  int loops_ = 0;             // enclosing for loops, for break and continue
  bool may_be_dead_ = false;  // inside an if: an unknown filter fails only when it is evaluated
  Stmt* macro_ = nullptr;     // the innermost one
};

std::string describe(const Token& t);

}  // namespace braid::text::jinja
