//! Which smells a function has.

use std::collections::BTreeSet;

use syn::visit::{self, Visit};
use syn::{Block, Expr, ExprIf, ExprMethodCall, Item, Lit};

use super::super::graph::{Call, Callee};
use super::super::names;
use super::super::visit::Function;
use super::flow::{Flows, RANDOM};
use super::repetition::{self, Repetition, Sleep};
use super::rules::{self, Rule};
use super::syntax::{mentions, turns_away, words, words_of_block};
use crate::imports::Imports;

/// Words that say that time bounds the loop, or that somebody can end it from outside.
const BOUNDED_BY_TIME: &[&str] = &["deadline", "elapsed", "timeout", "expire", "until", "cancel", "shutdown"];

/// Words for the time of one attempt, which does not bound all of them.
const TIMES_ONE_OUT: &[&str] = &["timeout", "timeout_at"];

/// Words that say that attempts are limited, if by somebody else.
const LIMITS: &[&str] = &[
    "exhaust",
    "max_retr",
    "max_attempt",
    "max_tries",
    "max_reconnect",
    "maxretr",
    "maxattempt",
    "maxreconnect",
];

/// Words that say that a longest delay exists.
const CAPS: &[&str] = &["clamp", "max", "cap", "ceil"];

/// Words for answers that ask for another try later.
const BUSY: &[&str] = &["TOO_MANY_REQUESTS", "SERVICE_UNAVAILABLE", "429", "503"];

/// Words by which a loop says that it tells one failure from another.
const CLASSIFIES: &[&str] =
    &["retryable", "transient", "should_retry", "can_retry", "is_server_error", "kind"];

/// One function of the tree.
pub(super) struct Candidate<'a> {
    pub(super) name: &'a str,
    pub(super) body: &'a Block,
    pub(super) is_async: bool,
    pub(super) imports: &'a Imports,
    /// What the audit knows of it, its calls followed.
    pub(super) facts: &'a Function,
    /// The words of the functions that it calls in its crate.
    pub(super) helpers: &'a BTreeSet<String>,
}

/// A smell and its line.
pub(super) type Smell = (usize, &'static Rule);

/// The smells of one function, in order of line.
pub(super) fn smells(candidate: &Candidate<'_>) -> Vec<Smell> {
    let flows = Flows::of(candidate.body);
    let mut around = words_of_block(candidate.body);
    around.extend(candidate.helpers.iter().cloned());
    let loops = repetition::of(candidate.body, candidate.imports, candidate.is_async);
    let mut found = Vec::new();
    let mut retries = names::repeats(candidate.name) || mentions(&around, CLASSIFIES);
    for repetition in &loops {
        let helped = candidate.facts.helped_loops.contains(&repetition.line);
        let smelled = of_loop(repetition, helped, &flows, &around);
        retries |= !smelled.is_empty();
        found.extend(smelled);
    }
    let fails = mentions(&words_of_block(candidate.body), &["err"]);
    let own_call = |call: &&Call| match &call.callee {
        Callee::Own(name) => name == candidate.name,
        Callee::Path(path) => path.last().is_some_and(|name| name == candidate.name),
        Callee::Method(_) | Callee::Macro(_) => false,
    };
    // A future that polls itself once more has made progress.
    let polls = candidate.name.starts_with("poll");
    if candidate.facts.recurs && fails && !polls {
        let own = candidate.facts.calls.iter().find(own_call).map(|call| call.line);
        let line = own.or_else(|| candidate.facts.waiting_loops.first().copied());
        found.extend(line.map(|line| (line, rules::RECURSION)));
    }
    if retries || mentions(&around, &["backoff", "delay"]) {
        found.extend(flows.jitter_after_cap.iter().map(|line| (*line, rules::JITTER_AFTER_CAP)));
    }
    let decides = names::repeats(candidate.name)
        || ["retryable", "transient", "should_retry"].iter().any(|word| candidate.name.contains(word));
    let in_retry = |line: usize| {
        loops.iter().any(|l| (l.line..=l.last_line).contains(&line) && is_retry(l, !l.sleeps.is_empty()))
    };
    let texts = Texts::of(candidate.body, !decides || !loops.is_empty());
    found.extend(
        texts.into_iter().filter(|line| decides || in_retry(*line)).map(|line| (line, rules::MESSAGE_TEXT)),
    );
    found.sort_by_key(|(line, rule)| (*line, rule.id));
    found.dedup_by_key(|(line, rule)| (*line, rule.id));
    found
}

/// The smells of a loop that a macro's definition holds.
pub(super) fn smells_of_macro(repetition: &Repetition) -> Vec<Smell> {
    of_loop(repetition, false, &Flows::default(), &repetition.words)
}

/// Whether the loop tries again after a failure. One that accepts connections serves; one that goes through things
/// and sleeps for none of them tries each once.
fn is_retry(repetition: &Repetition, sleeps: bool) -> bool {
    let slept_for = |sleep: &Sleep| !words(&sleep.argument).is_disjoint(&repetition.bound);
    let tries_each_once = repetition.alternatives && !repetition.sleeps.iter().any(slept_for);
    if repetition.words.contains("accept") || tries_each_once {
        return false;
    }
    let by_status = sleeps
        && (mentions(&repetition.words, &["should_retry", "is_retryable", "is_transient"])
            || BUSY.iter().any(|word| repetition.words.contains(*word)));
    let outcome = &repetition.outcome;
    outcome.failure_stays && (outcome.success_ends || repetition.counts)
        || by_status && outcome.success_leaves
}

fn of_loop(repetition: &Repetition, helped: bool, flows: &Flows, around: &BTreeSet<String>) -> Vec<Smell> {
    let sleeps = helped || !repetition.sleeps.is_empty();
    if !is_retry(repetition, sleeps) {
        return Vec::new();
    }
    let line = repetition.line;
    let by_time = |word: &&String| !(repetition.times_out && TIMES_ONE_OUT.contains(&word.as_str()));
    let of_all = repetition.words.iter().filter(by_time).cloned().collect();
    let bounded_by_time = mentions(&of_all, BOUNDED_BY_TIME);
    let limited = repetition.limited || mentions(&repetition.words, LIMITS);
    let mut found = Vec::new();
    if !sleeps && repetition.times_out && repetition.outcome.success_ends {
        if !limited && !bounded_by_time {
            found.push((line, rules::UNBOUNDED_RETRY));
        }
        return found;
    }
    if !sleeps {
        let asks = repetition.awaits
            && !mentions(&repetition.words, &["sleep", "delay", "backoff", "tick", "timer"]);
        if repetition.counts && asks && repetition.outcome.success_leaves {
            found.push((line, rules::NO_DELAY));
        }
        return found;
    }
    for sleep in &repetition.sleeps {
        if sleep.blocks_async {
            found.push((sleep.line, rules::BLOCKING_SLEEP));
        }
        let delay = flows.delay(&sleep.argument, &repetition.bound, (line, repetition.last_line));
        let random = mentions(around, RANDOM);
        let few = repetition.turns.is_some_and(|turns| turns <= 10);
        if delay.fixed && !random {
            found.push((sleep.line, rules::FIXED_DELAY));
        }
        if delay.grows && !random {
            found.push((sleep.line, rules::NO_JITTER));
        }
        let capped = around.contains("min") || mentions(&delay.words, CAPS);
        if delay.grows && !capped && !few {
            found.push((sleep.line, rules::UNCAPPED_DELAY));
        }
    }
    if repetition.turns.is_none_or(|turns| turns > 31) {
        found.extend(repetition.overflows.iter().map(|line| (*line, rules::OVERFLOWING_DELAY)));
    }
    let runs_out =
        mentions(&repetition.words, &["next_backoff", "next_delay"]) || repetition.words.contains("next");
    if !limited && !bounded_by_time && !runs_out {
        found.push((line, rules::UNBOUNDED_RETRY));
    } else if limited && !bounded_by_time {
        found.push((line, rules::NO_DEADLINE));
    }
    let busy = BUSY.iter().any(|word| repetition.words.contains(*word));
    if busy && !mentions(around, &["retry_after", "retryafter", "retry-after"]) {
        found.push((line, rules::RETRY_AFTER_IGNORED));
    }
    let looks = repetition.outcome.read_errors > 0 || mentions(&repetition.words, CLASSIFIES) || busy;
    if repetition.outcome.unread_errors > 0 && !looks {
        found.push((line, rules::EVERY_ERROR));
    }
    found
}

/// Lines at which the text of a message is searched.
struct Texts {
    lines: Vec<usize>,
    /// Only what turns control away counts: the function as a whole is no decision.
    in_loop: bool,
}

impl Texts {
    fn of(body: &Block, in_loop: bool) -> Vec<usize> {
        let mut texts = Self { lines: Vec::new(), in_loop };
        texts.visit_block(body);
        texts.lines
    }
}

impl Visit<'_> for Texts {
    fn visit_item(&mut self, _: &Item) {}

    /// A branch that goes on straight on has not decided about a retry.
    fn visit_expr_if(&mut self, branch: &ExprIf) {
        let other = branch.else_branch.as_ref().map(|(_, other)| &**other);
        let decides = turns_away(&branch.then_branch) || other.is_some() || !self.in_loop;
        if decides {
            self.visit_expr(&branch.cond);
        }
        self.visit_block(&branch.then_branch);
        if let Some(other) = other {
            self.visit_expr(other);
        }
    }

    fn visit_expr_method_call(&mut self, call: &ExprMethodCall) {
        let searches =
            matches!(call.method.to_string().as_str(), "contains" | "starts_with" | "ends_with" | "find");
        let literal = call.args.first().is_some_and(
            |argument| matches!(argument, Expr::Lit(literal) if matches!(literal.lit, Lit::Str(_))),
        );
        let of_error = words(&call.receiver).iter().any(|word| {
            matches!(
                word.as_str(),
                "e" | "err" | "error" | "msg" | "message" | "to_string" | "text" | "description" | "body"
            )
        });
        if searches && literal && of_error {
            self.lines.push(call.method.span().start().line);
        }
        visit::visit_expr_method_call(self, call);
    }
}
