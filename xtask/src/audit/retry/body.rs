//! Walks the body of one function, nested functions apart.

use std::collections::HashSet;

use proc_macro2::Span;
use syn::visit::{self, Visit};
use syn::{
    Block, Expr, ExprAsync, ExprAwait, ExprCall, ExprField, ExprForLoop, ExprLoop, ExprMethodCall, ExprPath,
    ExprWhile, Item, Local, Macro, Member, PatIdent,
};

use super::visit::Function;
use super::{tokens, waits};
use crate::imports::Imports;

/// What `block`, the body of a function, does.
pub(super) fn facts(block: &Block, imports: &Imports) -> Function {
    let mut body = Body {
        imports,
        facts: Function::default(),
        loops: Vec::new(),
        timers: HashSet::new(),
        enclosing_awaits: 0,
    };
    body.visit_block(block);
    let mut facts = body.facts;
    for lines in [&mut facts.waits, &mut facts.waiting_loops, &mut facts.awaiting_loops, &mut facts.decides] {
        lines.sort_unstable();
        lines.dedup();
    }
    facts
}

/// The walk through one body.
pub(super) struct Body<'a> {
    imports: &'a Imports,
    facts: Function,
    /// The loops around the current expression, outermost first.
    loops: Vec<Loop>,
    /// Variables that hold a timer which nobody has awaited yet.
    timers: HashSet<String>,
    enclosing_awaits: usize,
}

struct Loop {
    line: usize,
    waits: bool,
    awaits: bool,
}

impl Body<'_> {
    pub(super) fn enter_loop(&mut self, at: Span) {
        self.loops.push(Loop { line: line(at), waits: false, awaits: false });
    }

    pub(super) fn leave_loop(&mut self) {
        if let Some(left) = self.loops.pop() {
            if left.waits {
                self.facts.waiting_loops.push(left.line);
            }
            if left.awaits {
                self.facts.awaiting_loops.push(left.line);
            }
        }
    }

    pub(super) fn note_await(&mut self) {
        self.loops.iter_mut().for_each(|around| around.awaits = true);
    }

    /// Takes note of a call of `name`; `arguments` counts the receiver.
    pub(super) fn note_call(&mut self, name: &str, at: Span, arguments: usize, awaited: bool) {
        if waits::is_wait(name, arguments, awaited) {
            self.note_wait(at);
        }
    }

    /// Takes note of a name in an awaited expression that is not a call.
    pub(super) fn note_awaited_name(&mut self, name: &str, at: Span) {
        if waits::names_timer(name) || self.timers.contains(name) {
            self.note_wait(at);
        }
    }

    pub(super) fn note_decide(&mut self, name: &str, at: Span) {
        if waits::is_decide(name) {
            self.facts.decides.push(line(at));
        }
    }

    /// The last segment of what `name` was imported as.
    pub(super) fn real_name(&self, name: &str) -> String {
        self.imports.resolve_names(vec![name.to_owned()]).pop().unwrap_or_default()
    }

    fn note_wait(&mut self, at: Span) {
        self.facts.waits.push(line(at));
        self.loops.iter_mut().for_each(|around| around.waits = true);
    }

    fn is_awaited(&self) -> bool {
        self.enclosing_awaits > 0
    }

    /// Name and place of what a call calls.
    fn callee(&self, function: &Expr) -> Option<(String, Span)> {
        match function {
            Expr::Path(path) => {
                let last = path.path.segments.last()?;
                Some((self.imports.resolve(&path.path).pop()?, last.ident.span()))
            }
            Expr::Field(ExprField { member: Member::Named(name), .. }) => {
                Some((name.to_string(), name.span()))
            }
            Expr::Paren(inner) => self.callee(&inner.expr),
            _ => None,
        }
    }

    /// Whether `value` is a timer that is still to be awaited.
    fn is_timer(&self, value: &Expr) -> bool {
        match value {
            Expr::Call(call) => {
                let name = self.callee(&call.func);
                name.is_some_and(|(name, _)| waits::makes_timer(&name, call.args.len()))
                    || call.args.iter().any(|argument| self.is_timer(argument))
            }
            Expr::MethodCall(call) => {
                let adapter = matches!(call.method.to_string().as_str(), "boxed" | "fuse" | "shared");
                waits::makes_timer(&call.method.to_string(), call.args.len() + 1)
                    || adapter && self.is_timer(&call.receiver)
            }
            Expr::Closure(closure) => self.is_timer(&closure.body),
            Expr::Paren(inner) => self.is_timer(&inner.expr),
            Expr::Reference(inner) => self.is_timer(&inner.expr),
            Expr::Macro(call) => tokens::calls(&call.mac.tokens)
                .iter()
                .any(|(name, arguments)| waits::makes_timer(&self.real_name(name), *arguments)),
            _ => false,
        }
    }
}

impl Visit<'_> for Body<'_> {
    /// Nested functions are sites of their own.
    fn visit_item(&mut self, _: &Item) {}

    fn visit_expr_loop(&mut self, expr: &ExprLoop) {
        self.enter_loop(expr.loop_token.span);
        visit::visit_expr_loop(self, expr);
        self.leave_loop();
    }

    fn visit_expr_while(&mut self, expr: &ExprWhile) {
        self.enter_loop(expr.while_token.span);
        visit::visit_expr_while(self, expr);
        self.leave_loop();
    }

    fn visit_expr_for_loop(&mut self, expr: &ExprForLoop) {
        self.visit_expr(&expr.expr);
        self.enter_loop(expr.for_token.span);
        self.visit_block(&expr.body);
        self.leave_loop();
    }

    fn visit_expr_await(&mut self, expr: &ExprAwait) {
        self.note_await();
        self.enclosing_awaits += 1;
        visit::visit_expr_await(self, expr);
        self.enclosing_awaits -= 1;
    }

    /// What stands in an async block is awaited by the block's own `.await`s.
    fn visit_expr_async(&mut self, expr: &ExprAsync) {
        let outside = std::mem::take(&mut self.enclosing_awaits);
        visit::visit_expr_async(self, expr);
        self.enclosing_awaits = outside;
    }

    fn visit_expr_call(&mut self, call: &ExprCall) {
        if let Some((name, at)) = self.callee(&call.func) {
            self.note_call(&name, at, call.args.len(), self.is_awaited());
        }
        visit::visit_expr_call(self, call);
    }

    fn visit_expr_method_call(&mut self, call: &ExprMethodCall) {
        let name = call.method.to_string();
        self.note_call(&name, call.method.span(), call.args.len() + 1, self.is_awaited());
        self.note_decide(&name, call.method.span());
        visit::visit_expr_method_call(self, call);
    }

    /// A mention of `decide` counts without a call, so that passing it on hides nothing.
    fn visit_expr_path(&mut self, expr: &ExprPath) {
        if let Some((name, at)) = self.callee(&Expr::Path(expr.clone())) {
            self.note_decide(&name, at);
        }
        if let (true, Some(variable)) = (self.is_awaited(), expr.path.get_ident()) {
            self.note_awaited_name(&variable.to_string(), variable.span());
        }
        visit::visit_expr_path(self, expr);
    }

    fn visit_expr_field(&mut self, expr: &ExprField) {
        if let (true, Member::Named(name)) = (self.is_awaited(), &expr.member)
            && waits::names_timer(&name.to_string())
        {
            self.note_wait(name.span());
        }
        visit::visit_expr_field(self, expr);
    }

    fn visit_local(&mut self, local: &Local) {
        if local.init.as_ref().is_some_and(|init| self.is_timer(&init.expr)) {
            let mut names = Names(&mut self.timers);
            names.visit_pat(&local.pat);
        }
        visit::visit_local(self, local);
    }

    fn visit_macro(&mut self, mac: &Macro) {
        let awaits = mac.path.segments.last().is_some_and(|last| waits::awaits(&last.ident.to_string()));
        if awaits {
            self.note_await();
        }
        tokens::scan(self, mac.tokens.clone(), awaits);
    }
}

/// Collects the variables that a pattern binds.
struct Names<'a>(&'a mut HashSet<String>);

impl Visit<'_> for Names<'_> {
    fn visit_pat_ident(&mut self, pat: &PatIdent) {
        self.0.insert(pat.ident.to_string());
        visit::visit_pat_ident(self, pat);
    }
}

fn line(at: Span) -> usize {
    at.start().line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(code: &str) -> Function {
        let file = syn::parse_file(&format!("async fn f() {{\n{code}\n}}")).unwrap();
        super::super::visit::functions(&file).remove("f").unwrap()
    }

    fn loops_that_wait(code: &str) -> usize {
        body(code).waiting_loops.len()
    }

    #[test]
    fn each_kind_of_loop_counts() {
        assert_eq!(loops_that_wait("loop { sleep(d).await; }"), 1);
        assert_eq!(loops_that_wait("while again { tokio::time::sleep_until(t).await; }"), 1);
        assert_eq!(loops_that_wait("for delay in delays { clock.sleep(delay).await; }"), 1);
        assert_eq!(loops_that_wait("while timeout(d, rx.recv()).await.is_ok() {}"), 1);
        assert_eq!(loops_that_wait("loop {\nloop { sleep(d).await; } }"), 2);
    }

    #[test]
    fn waits_outside_of_loops_are_listed_but_make_no_loop_wait() {
        let once = body("sleep(d).await;\nloop { work().await; }");
        assert_eq!((once.waits, once.waiting_loops, once.awaiting_loops), (vec![2], vec![], vec![3]));
        assert_eq!(loops_that_wait("for x in timeout(d, list()).await { work(x); }"), 0);
    }

    #[test]
    fn blocking_waits_count_without_an_await() {
        assert_eq!(loops_that_wait("loop { std::thread::sleep(d); }"), 1);
        assert_eq!(loops_that_wait("while let Err(_) = rx.recv_timeout(d) {}"), 1);
    }

    #[test]
    fn timers_that_are_made_outside_and_awaited_inside_count() {
        assert_eq!(loops_that_wait("let mut every = interval(d); loop { every.tick().await; }"), 1);
        assert_eq!(loops_that_wait("let t = Box::pin(sleep(d)); loop { (&mut t).await; }"), 1);
        assert_eq!(loops_that_wait("let t = pin!(sleep(d)); loop { t.as_mut().await; }"), 1);
        assert_eq!(loops_that_wait("let t = s.timeout(d); while let Some(x) = t.next().await {}"), 1);
        assert_eq!(loops_that_wait("let nap = || sleep(d); loop { nap().await; }"), 1);
        assert_eq!(loops_that_wait("loop { (&mut self.sleep).await; }"), 1);
    }

    #[test]
    fn injected_sleeps_count() {
        assert_eq!(loops_that_wait("loop { (self.sleep)(d).await; }"), 1);
        assert_eq!(loops_that_wait("loop { self.clock.pause(d).await; }"), 1);
    }

    #[test]
    fn aliases_hide_nothing() {
        assert_eq!(loops_that_wait("use tokio::time::sleep as nap; loop { nap(d).await; }"), 1);
        assert_eq!(body("use retry::decide as judge; judge(p);").decides, [2]);
    }

    #[test]
    fn getters_builders_and_pure_ticks_are_no_waits() {
        assert_eq!(loops_that_wait("let timeout = policy.timeout(); loop { send(timeout).await; }"), 0);
        assert_eq!(loops_that_wait("loop { send(policy.timeout()).await; }"), 0);
        assert_eq!(loops_that_wait("let c = build().timeout(d).done(); loop { c.send().await; }"), 0);
        assert_eq!(loops_that_wait("loop { machine.tick(now); next().await; }"), 0);
    }

    #[test]
    fn an_awaited_result_is_no_timer() {
        assert_eq!(loops_that_wait("let x = timeout(d, f).await; loop { use_it(x).await; }"), 0);
    }

    #[test]
    fn decide_is_found_called_qualified_mentioned_and_as_a_method() {
        let code = "decide(p);\nretry::decide_with(p);\nx.map(decide);\npolicy.decide(1);\ndecided(p);\n\
                    sequence.on_failure(&f, now);\nRetrySequence::on_failure(&mut s);";
        assert_eq!(body(code).decides, [2, 3, 4, 5, 7, 8]);
    }
}
