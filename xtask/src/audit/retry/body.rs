//! Walks the body of one function, nested functions apart.

use std::collections::HashSet;

use proc_macro2::TokenStream;
use syn::visit::{self, Visit};
use syn::{
    Arm, BinOp, Block, Expr, ExprAssign, ExprAsync, ExprAwait, ExprBinary, ExprCall, ExprField, ExprForLoop,
    ExprLoop, ExprMethodCall, ExprPath, ExprWhile, Item, Local, Macro, Member, PatIdent,
};

use super::graph::Callee;
use super::visit::Function;
use super::{names, tokens, waits};
use crate::imports::Imports;
use notes::line;

pub(super) use notes::Body;

mod callee;
mod notes;

/// What `block`, the body of a function, does.
pub(super) fn facts(block: &Block, imports: &Imports) -> Function {
    let mut body = Body::new(imports);
    body.visit_block(block);
    body.finish()
}

/// What the definition of a macro does, in whatever of its arms.
pub(super) fn macro_facts(definition: &TokenStream, imports: &Imports) -> Function {
    let mut body = Body::new(imports);
    tokens::scan(&mut body, definition.clone(), false);
    body.finish()
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
        let mut bound = HashSet::new();
        Names(&mut bound).visit_pat(&expr.pat);
        for variable in bound {
            self.note_changed(&variable, expr.for_token.span);
        }
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
        let callee = self.callee(&call.func);
        if let Some((name, at)) = &callee {
            self.note_call(name, *at, call.args.len(), self.is_awaited());
            if let Expr::Path(path) = &*call.func {
                self.note_callee(Callee::Path(self.imports.resolve(&path.path)), *at);
            }
            if names::sends(name, call.args.len()) && self.is_awaited() {
                self.note_send(Expr::Call(call.clone()), call.args.iter().any(is_copy), *at);
            }
        }
        self.within_call(callee.as_ref().map(|(name, _)| name.as_str()), |body| {
            visit::visit_expr_call(body, call);
        });
    }

    fn visit_expr_method_call(&mut self, call: &ExprMethodCall) {
        let name = call.method.to_string();
        self.note_call(&name, call.method.span(), call.args.len() + 1, self.is_awaited());
        self.note_decide(&name, call.method.span());
        let own = matches!(&*call.receiver, Expr::Path(path) if path.path.is_ident("self"));
        let callee = if own { Callee::Own(name.clone()) } else { Callee::Method(name.clone()) };
        self.note_callee(callee, call.method.span());
        if names::sends(&name, call.args.len() + 1) && self.is_awaited() {
            let copies = is_copy(&call.receiver) || call.args.iter().any(is_copy);
            self.note_send(Expr::MethodCall(call.clone()), copies, call.method.span());
        }
        self.within_call(Some(&name), |body| visit::visit_expr_method_call(body, call));
    }

    /// Blocks and arms exclude each other, so what one of them sends is forgotten at its end.
    fn visit_block(&mut self, block: &Block) {
        self.sent.push(Vec::new());
        visit::visit_block(self, block);
        self.sent.pop();
    }

    fn visit_arm(&mut self, arm: &Arm) {
        self.sent.push(Vec::new());
        visit::visit_arm(self, arm);
        self.sent.pop();
    }

    fn visit_expr_assign(&mut self, assign: &ExprAssign) {
        self.note_assigned(&assign.left);
        visit::visit_expr_assign(self, assign);
    }

    fn visit_expr_binary(&mut self, binary: &ExprBinary) {
        if assigns(&binary.op) {
            self.note_assigned(&binary.left);
        }
        visit::visit_expr_binary(self, binary);
    }

    /// A mention of `decide` counts without a call, so that passing it on hides nothing.
    fn visit_expr_path(&mut self, expr: &ExprPath) {
        if let Some((name, at)) = self.callee(&Expr::Path(expr.clone())) {
            self.note_decide(&name, at);
            let resolved = self.imports.resolve(&expr.path);
            if waits::makes_sequence(&resolved) {
                self.facts.decides.push(line(at));
            }
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
            self.facts.sleeps |= self.spawns == 0;
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
        let Some(last) = mac.path.segments.last() else { return };
        let awaits = waits::awaits(&last.ident.to_string());
        self.note_callee(Callee::Macro(last.ident.to_string()), last.ident.span());
        if awaits {
            self.note_await();
        }
        tokens::scan(self, mac.tokens.clone(), awaits);
    }
}

/// Whether the argument or receiver is a copy, made so that the original can be sent again.
fn is_copy(argument: &Expr) -> bool {
    match argument {
        Expr::MethodCall(call) => {
            matches!(call.method.to_string().as_str(), "clone" | "try_clone") || is_copy(&call.receiver)
        }
        Expr::Try(inner) => is_copy(&inner.expr),
        _ => false,
    }
}

fn assigns(operator: &BinOp) -> bool {
    matches!(
        operator,
        BinOp::AddAssign(_)
            | BinOp::SubAssign(_)
            | BinOp::MulAssign(_)
            | BinOp::DivAssign(_)
            | BinOp::ShlAssign(_)
    )
}

/// Collects the variables that a pattern binds.
struct Names<'a>(&'a mut HashSet<String>);

impl Visit<'_> for Names<'_> {
    fn visit_pat_ident(&mut self, pat: &PatIdent) {
        self.0.insert(pat.ident.to_string());
        visit::visit_pat_ident(self, pat);
    }
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
                    RetrySequence::on_failure(&mut s);\nRetrySequence::attempts(&s);";
        assert_eq!(body(code).decides, [2, 3, 4, 5, 7]);
    }

    #[test]
    fn driving_a_sequence_is_asking_the_policy() {
        let code = "RetrySequence::begin(p);\nx.on_failure(&f, now, unit, &mut t);\nx.on_wake(now, &mut t);";
        assert_eq!(body(code).decides, [2, 3, 4]);
        assert_eq!(body("use retry::RetrySequence as Seq;\nSeq::begin(p);").decides, [3]);
        assert_eq!(body("layer.on_failure(f); x.on_wake();").decides, [0; 0]);
    }

    #[test]
    fn a_request_that_is_sent_again_is_found() {
        let twice = "if client.execute(r).await.is_err() {\nclient.execute(r).await?; }";
        assert_eq!(body(twice).resends, [3]);
        assert_eq!(body("match r.send().await { Ok(x) => x, Err(_) =>\nr.send().await? }").resends, [3]);
        assert_eq!(body("loop {\nclient.execute(r.try_clone()?).await; }").resends, [3]);
        assert_eq!(body("while again {\nr.clone().send().await; }").resends, [3]);
    }

    #[test]
    fn other_requests_and_exclusive_ones_are_no_resends() {
        assert_eq!(body("client.execute(a).await; client.execute(b).await;").resends, [0; 0]);
        assert_eq!(body("if x { r.send().await } else { r.send().await }").resends, [0; 0]);
        assert_eq!(body("for url in urls { client.execute(get(url)).await; }").resends, [0; 0]);
        assert_eq!(body("channel.send(x).await; channel.send(x).await;").resends, [0; 0]);
    }

    #[test]
    fn counters_of_tries_are_found_where_a_loop_binds_or_changes_them() {
        assert_eq!(body("for attempt in 0..3 { go(); }").counters, [2]);
        assert_eq!(body("loop {\nretries += 1; }").counters, [3]);
        assert_eq!(body("while go() {\nself.backoff = self.backoff * 2; }").counters, [3]);
        assert_eq!(body("let attempts = 3; loop { go(attempts); }").counters, [0; 0]);
        assert_eq!(body("stats.retries += 1;").counters, [0; 0]);
    }
}
