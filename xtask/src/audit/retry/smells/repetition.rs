//! The loops of one function that sleep or fail.

use std::collections::BTreeSet;

use proc_macro2::{TokenStream, TokenTree};
use syn::parse::Parser;
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{
    BinOp, Block, Expr, ExprAsync, ExprAwait, ExprBinary, ExprCall, ExprClosure, ExprField, ExprForLoop,
    ExprLoop, ExprMethodCall, ExprWhile, Item, Lit, Local, Macro, Member, Pat, PatIdent, Token,
};

use super::super::names;
use super::outcome::{self, Outcome};
use super::syntax::{mentions, words, words_of_block, words_of_pattern};
use crate::imports::Imports;

/// A sleep, and for how long.
#[derive(Debug)]
pub(super) struct Sleep {
    pub(super) line: usize,
    /// What is slept for; a helper may hide it.
    pub(super) argument: Expr,
    pub(super) blocks_async: bool,
}

/// A loop with what it says about itself.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts about one loop")]
pub(super) struct Repetition {
    pub(super) line: usize,
    pub(super) last_line: usize,
    pub(super) sleeps: Vec<Sleep>,
    pub(super) outcome: Outcome,
    /// The variables that the loop binds in its head.
    pub(super) bound: BTreeSet<String>,
    /// Every word in it.
    pub(super) words: BTreeSet<String>,
    /// It ends by itself: a `for`, or a comparison with a counter.
    pub(super) limited: bool,
    /// It goes through things of which each is tried once.
    pub(super) alternatives: bool,
    /// The number of turns, when it is a literal.
    pub(super) turns: Option<u64>,
    /// A counter in it is named for tries.
    pub(super) counts: bool,
    pub(super) awaits: bool,
    /// It bounds a request by time, and hence waits for nothing longer.
    pub(super) times_out: bool,
    /// Lines that raise or shift by a counter, unchecked.
    pub(super) overflows: Vec<usize>,
}

/// Every loop in the function, nested functions apart, in order of its end.
pub(super) fn of(body: &Block, imports: &Imports, is_async: bool) -> Vec<Repetition> {
    let mut finder = Finder {
        imports,
        asynchronous: is_async,
        naps: BTreeSet::new(),
        open: Vec::new(),
        found: Vec::new(),
    };
    finder.visit_block(body);
    finder.found
}

/// The loops in the tokens of a `macro_rules!` definition, as far as they are Rust without the `$`.
pub(super) fn of_macro(tokens: &TokenStream, imports: &Imports) -> Vec<Repetition> {
    let mut finder =
        Finder { imports, asynchronous: false, naps: BTreeSet::new(), open: Vec::new(), found: Vec::new() };
    finder.tokens(tokens.clone());
    finder.found
}

struct Finder<'a> {
    imports: &'a Imports,
    asynchronous: bool,
    /// Variables that hold a closure which sleeps.
    naps: BTreeSet<String>,
    open: Vec<Repetition>,
    found: Vec<Repetition>,
}

impl Finder<'_> {
    fn enter(
        &mut self,
        place: (usize, usize),
        outcome: Outcome,
        words: BTreeSet<String>,
        bound: BTreeSet<String>,
    ) {
        let counts = bound.iter().any(|name| names::counts(name));
        self.open.push(Repetition {
            line: place.0,
            last_line: place.1,
            sleeps: Vec::new(),
            outcome,
            bound,
            words,
            limited: false,
            alternatives: false,
            turns: None,
            counts,
            awaits: false,
            times_out: false,
            overflows: Vec::new(),
        });
    }

    fn leave(&mut self) {
        self.found.extend(self.open.pop());
    }

    fn sleep(&mut self, path: &[String], argument: Option<&Expr>, line: usize) {
        let name = path.last().map_or("", String::as_str);
        let (Some(innermost), Some(argument)) = (self.open.last_mut(), argument) else { return };
        let made = path.len() > 1
            && matches!((path[path.len() - 2].as_str(), name), ("Delay", "new") | ("Timer", "after"));
        if made || matches!(name, "sleep" | "sleep_until" | "park_timeout" | "delay_for" | "sleep_ms") {
            let blocks_async = self.asynchronous && path.len() > 1 && path[path.len() - 2] == "thread";
            innermost.sleeps.push(Sleep { line, argument: argument.clone(), blocks_async });
        }
    }

    /// What is given up by the clock is a request, unless it waits for somebody's word.
    fn time_out(&mut self, work: Option<&Expr>) {
        const LISTENING: &[&str] = &[
            "recv", "next", "read", "accept", "changed", "notified", "wait", "join", "lock", "acquire",
            "poll",
        ];
        let listens = work.is_none_or(|work| mentions(&words(work), LISTENING));
        if let (false, Some(around)) = (listens, self.open.last_mut()) {
            around.times_out = true;
        }
    }

    /// A closure that an iterator calls until it succeeds is the body of a loop.
    fn iteration(&mut self, call: &ExprMethodCall, range: &Expr, closure: &ExprClosure) {
        let seen = words(&closure.body);
        let fails = ["ok", "err", "is_ok", "is_err", "Ok", "Err"].iter().any(|word| seen.contains(*word));
        let outcome = if fails { outcome::of_closure() } else { Outcome::default() };
        let bound = closure.inputs.iter().flat_map(words_of_pattern).collect();
        self.enter(lines(call), outcome, seen, bound);
        if let Some(opened) = self.open.last_mut() {
            opened.limited = !is_endless(range);
            opened.turns = literal_turns(range);
        }
        visit::visit_expr_closure(self, closure);
        self.leave();
    }

    /// Loops and sleeps in the tokens of a macro.
    fn tokens(&mut self, tokens: TokenStream) {
        let tokens: Vec<TokenTree> = tokens.into_iter().filter(|token| !is_punct(token, '$')).collect();
        let mut index = 0;
        while let Some(token) = tokens.get(index) {
            match token {
                TokenTree::Ident(word) if word == "loop" || word == "while" || word == "for" => {
                    let is_body = |token: &TokenTree| matches!(token, TokenTree::Group(group) if group.delimiter() == proc_macro2::Delimiter::Brace);
                    let end = tokens[index..].iter().position(is_body).map_or(index, |length| index + length);
                    let code = tokens[index..=end].iter().cloned().map(without_dollars).collect();
                    if let Ok(code) = syn::parse2::<Expr>(code) {
                        self.visit_expr(&code);
                        index = end;
                    }
                }
                TokenTree::Ident(word) => {
                    if let Some(TokenTree::Group(group)) = tokens.get(index + 1) {
                        let arguments =
                            Punctuated::<Expr, Token![,]>::parse_terminated.parse2(group.stream());
                        let path = self.imports.resolve_names(vec![word.to_string()]);
                        let argument = arguments.ok().and_then(|arguments| arguments.first().cloned());
                        self.sleep(&path, argument.as_ref(), word.span().start().line);
                    }
                }
                TokenTree::Group(group) => self.tokens(group.stream()),
                _ => {}
            }
            index += 1;
        }
    }
}

fn is_punct(token: &TokenTree, wanted: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == wanted)
}

/// `$x` is an identifier like another, once its `$` is gone.
fn without_dollars(token: TokenTree) -> TokenTree {
    let TokenTree::Group(group) = token else { return token };
    let inner = group.stream().into_iter().filter(|token| !is_punct(token, '$')).map(without_dollars);
    let mut stripped = proc_macro2::Group::new(group.delimiter(), inner.collect());
    stripped.set_span(group.span());
    TokenTree::Group(stripped)
}

fn lines(code: &impl Spanned) -> (usize, usize) {
    (code.span().start().line, code.span().end().line)
}

/// The range and the closure of `(0..3).find_map(|_| …)`: what is called again until one of its answers ends it.
fn iteration(call: &ExprMethodCall) -> Option<(&Expr, &ExprClosure)> {
    let ends = ["find", "find_map", "any", "position", "try_for_each", "try_fold"];
    let range = match &*call.receiver {
        Expr::Paren(inner) => &*inner.expr,
        receiver => receiver,
    };
    match (range, call.args.last()) {
        (Expr::Range(_), Some(Expr::Closure(closure))) if ends.iter().any(|name| call.method == name) => {
            Some((range, closure))
        }
        _ => None,
    }
}

/// The number of turns that `0..3` and its like have.
fn literal_turns(range: &Expr) -> Option<u64> {
    let Expr::Range(range) = range else { return None };
    match range.end.as_deref() {
        Some(Expr::Lit(end)) => match &end.lit {
            Lit::Int(number) => number.base10_parse().ok(),
            _ => None,
        },
        _ => None,
    }
}

fn is_endless(range: &Expr) -> bool {
    matches!(range, Expr::Range(range) if range.end.is_none())
}

impl Visit<'_> for Finder<'_> {
    fn visit_item(&mut self, _: &Item) {}

    fn visit_expr_async(&mut self, expr: &ExprAsync) {
        let outside = std::mem::replace(&mut self.asynchronous, true);
        visit::visit_expr_async(self, expr);
        self.asynchronous = outside;
    }

    fn visit_expr_loop(&mut self, expr: &ExprLoop) {
        self.enter(lines(expr), outcome::of(&expr.body), words_of_block(&expr.body), BTreeSet::new());
        visit::visit_expr_loop(self, expr);
        self.leave();
    }

    fn visit_expr_while(&mut self, expr: &ExprWhile) {
        let mut seen = words_of_block(&expr.body);
        seen.extend(words(&expr.cond));
        self.enter(lines(expr), outcome::of_while(expr), seen, BTreeSet::new());
        visit::visit_expr_while(self, expr);
        self.leave();
    }

    fn visit_expr_for_loop(&mut self, expr: &ExprForLoop) {
        self.visit_expr(&expr.expr);
        let mut seen = words_of_block(&expr.body);
        seen.extend(words(&expr.expr));
        self.enter(lines(expr), outcome::of(&expr.body), seen, words_of_pattern(&expr.pat));
        if let Some(opened) = self.open.last_mut() {
            opened.limited = !is_endless(&expr.expr);
            opened.turns = literal_turns(&expr.expr);
            let through_things = !matches!(*expr.expr, Expr::Range(_)) && !matches!(*expr.pat, Pat::Wild(_));
            opened.alternatives = through_things && !opened.counts;
        }
        self.visit_block(&expr.body);
        self.leave();
    }

    /// What a pattern binds in a turn of a loop is new in every turn; a `let` gives what it is given.
    fn visit_pat_ident(&mut self, pattern: &PatIdent) {
        for around in &mut self.open {
            around.bound.insert(pattern.ident.to_string());
        }
        visit::visit_pat_ident(self, pattern);
    }

    fn visit_local(&mut self, local: &Local) {
        if let Some(init) = &local.init {
            if let Expr::Closure(closure) = &*init.expr
                && words(&closure.body).contains("sleep")
            {
                self.naps.extend(words_of_pattern(&local.pat));
            }
            visit::visit_local_init(self, init);
        }
    }

    fn visit_expr_await(&mut self, expr: &ExprAwait) {
        self.open.iter_mut().for_each(|around| around.awaits = true);
        visit::visit_expr_await(self, expr);
    }

    fn visit_expr_call(&mut self, call: &ExprCall) {
        if let Expr::Paren(inner) = &*call.func
            && let Expr::Field(ExprField { member: Member::Named(name), .. }) = &*inner.expr
        {
            self.sleep(&[name.to_string()], call.args.first(), call.span().start().line);
        }
        if let Expr::Path(path) = &*call.func {
            if path.path.get_ident().is_some_and(|name| self.naps.contains(&name.to_string())) {
                self.sleep(&["sleep".to_owned()], Some(&Expr::Call(call.clone())), call.span().start().line);
            }
            let resolved = self.imports.resolve(&path.path);
            self.sleep(&resolved, call.args.first(), call.span().start().line);
            if resolved.last().is_some_and(|name| name == "timeout" || name == "timeout_at") {
                self.time_out(call.args.last());
            }
        }
        visit::visit_expr_call(self, call);
    }

    fn visit_expr_method_call(&mut self, call: &ExprMethodCall) {
        let name = call.method.to_string();
        let line = call.method.span().start().line;
        self.sleep(std::slice::from_ref(&name), call.args.first(), line);
        if let ("tick", true, Some(around)) = (name.as_str(), call.args.is_empty(), self.open.last_mut()) {
            let argument = (*call.receiver).clone();
            around.sleeps.push(Sleep { line, argument, blocks_async: false });
        }
        let raises = matches!(name.as_str(), "pow" | "powi");
        let exponent = call.args.first();
        if raises
            && exponent.is_some_and(is_unchecked_counter)
            && !matches!(&*call.receiver, Expr::Lit(lit) if matches!(lit.lit, Lit::Float(_)))
            && let Some(around) = self.open.last_mut()
        {
            around.overflows.push(call.method.span().start().line);
        }
        match iteration(call) {
            Some((range, closure)) => self.iteration(call, range, closure),
            None => visit::visit_expr_method_call(self, call),
        }
    }

    fn visit_expr_binary(&mut self, binary: &ExprBinary) {
        let line = binary.op.span().start().line;
        let compares =
            matches!(binary.op, BinOp::Lt(_) | BinOp::Le(_) | BinOp::Gt(_) | BinOp::Ge(_) | BinOp::Eq(_));
        let assigns = matches!(binary.op, BinOp::AddAssign(_) | BinOp::SubAssign(_) | BinOp::MulAssign(_));
        let seen: BTreeSet<_> = words(&binary.left).into_iter().chain(words(&binary.right)).collect();
        let counter = seen.iter().any(|word| names::counts(&word.to_lowercase()))
            || mentions(&seen, &["limit", "remaining", "count", "left"]);
        for around in &mut self.open {
            around.limited |= compares && counter;
            around.counts |= (compares || assigns) && seen.iter().any(|word| names::counts(word));
        }
        if let (BinOp::Shl(_), Some(around)) = (&binary.op, self.open.last_mut())
            && is_unchecked_counter(&binary.right)
        {
            around.overflows.push(line);
        }
        visit::visit_expr_binary(self, binary);
    }

    fn visit_macro(&mut self, mac: &Macro) {
        self.tokens(mac.tokens.clone());
    }
}

/// Whether an exponent is a counter of tries that nothing bounds.
fn is_unchecked_counter(exponent: &Expr) -> bool {
    let seen = words(exponent);
    seen.iter().any(|word| names::counts(word)) && !seen.contains("min") && !seen.contains("clamp")
}
