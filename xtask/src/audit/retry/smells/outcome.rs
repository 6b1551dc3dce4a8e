//! How a loop answers failure: whether it stays for another try, and whether success leaves it.

use std::collections::BTreeSet;

use syn::visit::{self, Visit};
use syn::{
    Arm, Block, Expr, ExprAssign, ExprBlock, ExprBreak, ExprClosure, ExprIf, ExprMatch, ExprReturn,
    ExprWhile, Item, Local, Pat,
};

use super::syntax::{
    block_leaves, calls, is_numbered, leaves, mentions, variant, words, words_of_block, words_of_pattern,
};

/// What was seen of failures in one loop.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts about one loop")]
pub(super) struct Outcome {
    /// A word in the loop names a sleep.
    sleeps: bool,
    /// After some failure the loop goes on.
    pub(super) failure_stays: bool,
    /// Something other than a failure ends the loop.
    pub(super) success_leaves: bool,
    /// The success of what may fail ends the loop, for certain.
    pub(super) success_ends: bool,
    /// Variables that are set where something has succeeded.
    set_by_success: BTreeSet<String>,
    /// Failures after which the loop goes on, whose error nobody reads.
    pub(super) unread_errors: usize,
    /// Failures after which the loop goes on, whose error somebody reads.
    pub(super) read_errors: usize,
}

/// Looks at the body of a loop, its nested loops included.
pub(super) fn of(body: &Block) -> Outcome {
    let sleeps = mentions(&words_of_block(body), &["sleep"]);
    let mut outcome = Outcome { sleeps, ..Outcome::default() };
    outcome.visit_block(body);
    // Whoever gets past the failures gets out: `let x = match … { Ok(x) => x, Err(_) => continue }; return x`.
    outcome.success_ends |= block_leaves(body);
    outcome
}

/// Of a closure that an iterator calls until it succeeds.
pub(super) fn of_closure() -> Outcome {
    Outcome {
        failure_stays: true,
        success_leaves: true,
        success_ends: true,
        unread_errors: 1,
        ..Outcome::default()
    }
}

/// As [`of`], for a `while` with its condition.
pub(super) fn of_while(expr: &ExprWhile) -> Outcome {
    let mut outcome = of(&expr.body);
    let failing = match &*expr.cond {
        Expr::Let(condition) => variant(&condition.pat) == "Err",
        condition => fails(condition, &expr.body),
    };
    let flag = words(&expr.cond);
    let flagged = outcome.set_by_success.iter().any(|variable| flag.contains(variable));
    outcome.success_leaves |= flagged;
    outcome.success_ends |= flagged;
    let error = match &*expr.cond {
        Expr::Let(condition) => words_of_pattern(&condition.pat),
        _ => BTreeSet::new(),
    };
    let reads = !error.is_disjoint(&code_words_of_block(&expr.body));
    if failing && reads {
        outcome.read_errors += 1;
    }
    if failing {
        outcome.failure_stays = true;
        outcome.success_leaves = true;
        outcome.success_ends = true;
        outcome.unread_errors += 1;
    }
    outcome
}

/// Names of operations whose failure only says that somebody else was faster.
const RACES: &[&str] = &["compare_exchange", "compare_exchange_weak", "compare_and_swap", "try_lock"];

/// Whether the condition holds after a failure; that a number says so counts where the code sleeps.
fn fails(condition: &Expr, code: &Block) -> bool {
    calls(condition, &["is_err"]) && !calls(condition, RACES)
        || is_numbered(condition) == Some(false) && mentions(&words_of_block(code), &["sleep"])
}

/// Whether the condition holds after a success.
fn succeeds(condition: &Expr) -> bool {
    calls(condition, &["is_ok", "is_success"]) && !calls(condition, RACES)
}

/// What was interrupted, would block or found no room has not failed.
fn is_failure(pattern: &Pat, guard: Option<&Expr>) -> bool {
    let mut seen = words_of_pattern(pattern);
    seen.extend(guard.map(words).unwrap_or_default());
    let waits = ["Interrupted", "WouldBlock", "EINTR", "Full", "Empty"];
    variant(pattern) == "Err" && !waits.iter().any(|word| seen.contains(*word))
}

impl Outcome {
    fn failed(&mut self, pattern: Option<&Pat>, stays: bool, reads: impl Fn(&str) -> bool) {
        if !stays {
            return;
        }
        self.failure_stays = true;
        let bound = pattern.map(words_of_pattern).unwrap_or_default();
        let specific = bound.iter().filter(|word| *word != "Err").count() > 1;
        if specific || bound.iter().any(|word| word != "Err" && reads(word)) {
            self.read_errors += 1;
        } else {
            self.unread_errors += 1;
        }
    }

    fn arm(&mut self, arm: &Arm, has_ok: bool) {
        let (pattern, guard) = match &arm.pat {
            Pat::Guard(guarded) => (&*guarded.pat, Some(&*guarded.guard)),
            pattern => (pattern, None),
        };
        let failing = is_failure(pattern, guard) || has_ok && matches!(pattern, Pat::Wild(_));
        if !failing {
            if variant(pattern) == "Ok" && !words_of_pattern(pattern).contains("Err") {
                self.success_ends |= leaves(&arm.body);
                self.set_by_success.extend(set_in(&arm.body));
            }
            return visit::visit_arm(self, arm);
        }
        let read = |word: &str| {
            guard.is_some_and(|guard| words(guard).contains(word)) || code_words(&arm.body).contains(word)
        };
        self.failed(Some(pattern), !leaves(&arm.body), read);
    }
}

/// The variables that the code sets.
fn set_in(code: &Expr) -> BTreeSet<String> {
    struct Set(BTreeSet<String>);
    impl Visit<'_> for Set {
        fn visit_expr_assign(&mut self, assign: &ExprAssign) {
            self.0.extend(words(&assign.left));
        }
    }
    let mut set = Set(BTreeSet::new());
    set.visit_expr(code);
    set.0
}

fn code_words_of_block(code: &Block) -> BTreeSet<String> {
    code_words(&Expr::Block(ExprBlock { attrs: Vec::new(), label: None, block: code.clone() }))
}

/// The words of code, logging apart.
fn code_words(code: &Expr) -> BTreeSet<String> {
    struct Code(BTreeSet<String>);
    impl Visit<'_> for Code {
        fn visit_ident(&mut self, ident: &syn::Ident) {
            self.0.insert(ident.to_string());
        }
    }
    let mut found = Code(BTreeSet::new());
    found.visit_expr(code);
    found.0
}

impl Visit<'_> for Outcome {
    fn visit_item(&mut self, _: &Item) {}

    fn visit_expr_closure(&mut self, _: &ExprClosure) {}

    fn visit_expr_return(&mut self, _: &ExprReturn) {
        self.success_leaves = true;
    }

    fn visit_expr_break(&mut self, _: &ExprBreak) {
        self.success_leaves = true;
    }

    fn visit_expr_match(&mut self, choice: &ExprMatch) {
        self.visit_expr(&choice.expr);
        let has_ok = choice.arms.iter().any(|arm| variant(&arm.pat) == "Ok");
        // `.ok()` makes a failure of nothing.
        let from_result = matches!(&*choice.expr, Expr::MethodCall(call) if call.method == "ok");
        for arm in &choice.arms {
            if from_result && matches!(&arm.pat, Pat::Ident(name) if name.ident == "None") {
                self.failed(None, !leaves(&arm.body), |_| false);
            } else {
                self.success_ends |= from_result && variant(&arm.pat) == "Some" && leaves(&arm.body);
                self.arm(arm, has_ok);
            }
        }
    }

    fn visit_expr_if(&mut self, branch: &ExprIf) {
        let (failing_then, failing_else, pattern) = match &*branch.cond {
            Expr::Let(condition) => {
                let failure = is_failure(&condition.pat, None);
                (failure, variant(&condition.pat) == "Ok", Some(&*condition.pat))
            }
            condition => {
                let numbered = is_numbered(condition).filter(|_| self.sleeps);
                let failing_then = fails(condition, &branch.then_branch) || numbered == Some(false);
                (failing_then, succeeds(condition) || numbered == Some(true), None)
            }
        };
        let then_leaves = block_leaves(&branch.then_branch);
        if failing_then {
            let seen = words_of_block(&branch.then_branch);
            self.failed(pattern, !then_leaves, |word| seen.contains(word));
        } else if failing_else {
            let other = branch.else_branch.as_ref().map(|(_, other)| &**other);
            self.failed(None, !other.is_some_and(leaves) && then_leaves, |_| false);
            self.success_ends |= then_leaves;
        }
        if !failing_then {
            self.visit_block(&branch.then_branch);
        }
        if let (false, Some((_, other))) = (failing_else, &branch.else_branch) {
            self.visit_expr(other);
        }
    }

    fn visit_local(&mut self, local: &Local) {
        if let Some(init) = &local.init {
            match (&init.diverge, variant(&local.pat).as_str()) {
                (Some((_, other)), "Ok") => self.failed(None, !leaves(other), |_| false),
                (Some((_, other)), "Err") => {
                    self.visit_expr(other);
                    self.failed(None, true, |_| false);
                    self.read_errors += 1;
                }
                _ => self.visit_expr(&init.expr),
            }
        }
    }
}
