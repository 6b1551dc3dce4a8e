//! How a loop answers failure: whether it stays for another try, and whether success leaves it.

use syn::visit::{self, Visit};
use syn::{
    Arm, Block, Expr, ExprBreak, ExprClosure, ExprIf, ExprMatch, ExprReturn, ExprWhile, Item, Local, Pat,
};

use super::syntax::{block_leaves, calls, leaves, variant, words, words_of_block, words_of_pattern};

/// What was seen of failures in one loop.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// After some failure the loop goes on.
    pub(super) failure_stays: bool,
    /// Something other than a failure ends the loop.
    pub(super) success_leaves: bool,
    /// Failures after which the loop goes on, whose error nobody reads.
    pub(super) unread_errors: usize,
    /// Failures after which the loop goes on, whose error somebody reads.
    pub(super) read_errors: usize,
}

/// Looks at the body of a loop, its nested loops included.
pub(super) fn of(body: &Block) -> Outcome {
    let mut outcome = Outcome::default();
    outcome.visit_block(body);
    outcome
}

/// As [`of`], for a `while` with its condition.
pub(super) fn of_while(expr: &ExprWhile) -> Outcome {
    let mut outcome = of(&expr.body);
    let failing = match &*expr.cond {
        Expr::Let(condition) => variant(&condition.pat) == "Err",
        condition => calls(condition, &["is_err"]),
    };
    if failing {
        outcome.failure_stays = true;
        outcome.success_leaves = true;
        outcome.unread_errors += 1;
    }
    outcome
}

/// An interrupted system call or an operation that would block has not failed.
fn is_failure(pattern: &Pat, guard: Option<&Expr>) -> bool {
    let mut seen = words_of_pattern(pattern);
    seen.extend(guard.map(words).unwrap_or_default());
    variant(pattern) == "Err"
        && !seen.contains("Interrupted")
        && !seen.contains("WouldBlock")
        && !seen.contains("EINTR")
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
            return visit::visit_arm(self, arm);
        }
        let read = |word: &str| {
            guard.is_some_and(|guard| words(guard).contains(word)) || code_words(&arm.body).contains(word)
        };
        self.failed(Some(pattern), !leaves(&arm.body), read);
    }
}

/// The words of code, logging apart.
fn code_words(code: &Expr) -> std::collections::BTreeSet<String> {
    struct Code(std::collections::BTreeSet<String>);
    impl Visit<'_> for Code {
        fn visit_ident(&mut self, ident: &syn::Ident) {
            self.0.insert(ident.to_string());
        }
    }
    let mut found = Code(std::collections::BTreeSet::new());
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
        for arm in &choice.arms {
            self.arm(arm, has_ok);
        }
    }

    fn visit_expr_if(&mut self, branch: &ExprIf) {
        let (failing_then, failing_else, pattern) = match &*branch.cond {
            Expr::Let(condition) => {
                let failure = is_failure(&condition.pat, None);
                (failure, variant(&condition.pat) == "Ok", Some(&*condition.pat))
            }
            condition => (calls(condition, &["is_err"]), calls(condition, &["is_ok", "is_success"]), None),
        };
        let then_leaves = block_leaves(&branch.then_branch);
        if failing_then {
            let seen = words_of_block(&branch.then_branch);
            self.failed(pattern, !then_leaves, |word| seen.contains(word));
        } else if failing_else {
            let other = branch.else_branch.as_ref().map(|(_, other)| &**other);
            self.failed(None, !other.is_some_and(leaves) && then_leaves, |_| false);
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
