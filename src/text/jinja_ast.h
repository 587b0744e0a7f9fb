// The tree of a parsed template. An expression stores its parts in `kids`, in the order given for its kind, so that
// depth (which bounds every recursion over the tree) is computed in one place.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "text/jinja_value.h"

namespace braid::text::jinja {

struct Builtin;
struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

struct Expr {
  enum class Kind : uint8_t {
    constant,     // value
    name,         // name
    list,         // kids: items
    tuple,        // kids: items
    dict,         // kids: key, value, key, value, ...
    attribute,    // kids: object; name
    item,         // kids: object, key
    slice,        // kids: object, from, to, step; those left out are null
    call,         // kids: callee, arguments; keywords
    filter,       // kids: value (null: the text of a block), arguments; keywords, name, builtin
    test,         // kids: value, arguments; keywords, name, builtin
    negate,       // kids: number
    plus,         // kids: number
    binary,       // kids: left, right; name is one of + - * / // % **
    concat,       // kids: parts
    compare,      // kids: first, second, third, ...; keywords holds the operators between them
    logical_and,  // kids: left, right
    logical_or,   // kids: left, right
    logical_not,  // kids: operand
    conditional,  // kids: test, then, else (null: undefined)
    member,       // target of a set only: name.value with a namespace called name
  };
  Kind kind;
  int line = 0;
  int depth = 1;
  std::string name{};
  Value value{};
  std::vector<ExprPtr> kids{};
  std::vector<std::string> keywords{};  // one per argument: "" positional, "*" and "**" spread, else its name
  const Builtin* builtin = nullptr;     // null: unknown, an error only if it is evaluated
};

struct Stmt;
using Body = std::vector<Stmt>;

struct Param {
  std::string name;
  ExprPtr fallback;  // null: undefined when not given
};

struct Branch {
  ExprPtr test;  // null: else
  Body body;
};

struct Stmt {
  enum class Kind : uint8_t {
    data,          // name is the text
    print,         // expr
    condition,     // branches: if, elif ..., else
    loop,          // target, expr (what to iterate over), branches[0] {filter, body}, branches[1] {null, else}
    set,           // target, expr
    set_block,     // target, expr (filters or null), body
    macro,         // name, params, body
    call_block,    // params, expr (the call), body
    filter_block,  // expr, body
    with,          // params (names and values), body
    scope,         // body: {% generation %}
    leave,         // break
    skip,          // continue
  };
  Kind kind;
  int line = 0;
  std::string name{};
  ExprPtr target{}, expr{};
  std::vector<Param> params{};
  std::vector<Branch> branches{};
  Body body{};
  bool recursive = false;                                              // loop
  bool takes_more = false, takes_named = false, takes_caller = false;  // macro: its body reads varargs, kwargs, caller
};

}  // namespace braid::text::jinja
