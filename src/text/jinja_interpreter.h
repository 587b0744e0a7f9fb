// Runs a template's tree. One interpreter renders once. Time, memory, output and nesting are bounded by Limits: every
// operation spends steps, in proportion to the text it touches, and every new value is charged against the memory.
#pragma once
#include <ctime>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "text/jinja_ast.h"
#include "text/jinja_builtins.h"
#include "text/template.h"

namespace braid::text::jinja {

// Variables of one block of the template. A loop body or macro opens a new one; an if does not.
struct Scope {
  std::shared_ptr<Scope> parent;
  std::map<std::string, Value, std::less<>> names;
};
using ScopePtr = std::shared_ptr<Scope>;  // shared: macros keep the scope they were defined in

class Interpreter {
 public:
  Interpreter(std::map<std::string, Value, std::less<>> variables, const std::tm& now, const Limits& limits);
  ~Interpreter();
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

  std::string run(const Body& body);  // throws Raised
  int line() const { return line_; }  // the current one, or where it stopped

  // For builtins.
  Value call(const Value& callee, CallArgs args);
  void spend(int64_t steps);
  void allocate(int64_t bytes);
  Value charged(Value v);  // allocates what v takes if it is new
  Value make_namespace(const CallArgs& args);
  const std::tm& now() const { return now_; }

 private:
  enum class Flow { on, leave, skip };
  struct Deeper {
    explicit Deeper(Interpreter& in) : interpreter(in) { in.enter(); }
    ~Deeper() { --interpreter.depth_; }
    Interpreter& interpreter;
  };
  class Capture;
  void enter();

  Flow exec(const Body& body, const ScopePtr& scope);
  Flow exec(const Stmt& s, const ScopePtr& scope);
  std::string captured(const Body& body, const ScopePtr& scope);
  Flow condition(const Stmt& s, const ScopePtr& scope);
  Flow loop(const Stmt& s, const ScopePtr& scope, const Value& over, int64_t depth0);
  void call_block(const Stmt& s, const ScopePtr& scope);
  void with(const Stmt& s, const ScopePtr& scope);
  Value macro(const Stmt& s, const ScopePtr& scope, const std::string& name);
  Value run_macro(const Stmt& s, const ScopePtr& scope, const std::string& name, CallArgs args);
  void bind_extra(const Stmt& s, Scope& scope, const std::string& name, CallArgs& args);
  void assign(const Expr& target, Value value, Scope& scope, const ScopePtr& around);
  void emit(const std::string& text);

  Value eval(const Expr& e, const ScopePtr& scope);
  Value eval_name(const Expr& e, const ScopePtr& scope);
  Value eval_dict(const Expr& e, const ScopePtr& scope);
  Value eval_call(const Expr& e, const ScopePtr& scope, CallArgs extra = {});
  Value eval_filter(const Expr& e, const ScopePtr& scope, const Value* block);
  bool eval_compare(const Expr& e, const ScopePtr& scope);
  Value eval_slice(const Expr& e, const ScopePtr& scope);
  Value eval_concat(const Values& parts);
  Value eval_binary(const Expr& e, const ScopePtr& scope);
  Value apply(const Expr& e, const ScopePtr& scope, const char* what, Value subject);
  void gather(const Expr& e, const ScopePtr& scope, CallArgs& args);

  Limits limits_;
  std::tm now_;
  ScopePtr globals_;
  std::string* out_ = nullptr;
  int line_ = 1;
  int32_t depth_ = 0;
  int64_t steps_ = 0, bytes_ = 0;
  // Namespaces, and scopes that macros keep, may form reference cycles: they are cleared when the rendering ends.
  std::vector<std::shared_ptr<Namespace>> spaces_;
  std::vector<ScopePtr> kept_;
};

}  // namespace braid::text::jinja
