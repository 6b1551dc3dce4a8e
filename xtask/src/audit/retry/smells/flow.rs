//! Where a delay comes from: the assignments of one function.

use std::collections::BTreeSet;

use syn::visit::{self, Visit};
use syn::{BinOp, Block, Expr, ExprAssign, ExprBinary, ExprMethodCall, Item, Local};

use super::syntax::{grows, mentions, words, words_of_pattern};

/// Words that say that something is drawn at random.
pub(super) const RANDOM: &[&str] = &["jitter", "rand", "rng", "uniform"];

/// One value given to a variable.
#[expect(clippy::struct_excessive_bools, reason = "independent facts about one expression")]
struct Flow {
    target: String,
    line: usize,
    words: BTreeSet<String>,
    grows: bool,
    capped: bool,
    /// Made of numbers and names by constructors alone.
    constant: bool,
    /// `let` gives a fresh value; an assignment changes one.
    fresh: bool,
}

/// What a delay is made of.
#[derive(Debug, Default)]
pub(super) struct Delay {
    /// Every name that it depends on.
    pub(super) words: BTreeSet<String>,
    /// Somewhere on the way it is multiplied.
    pub(super) grows: bool,
    /// It is the same in every turn of its loop.
    pub(super) fixed: bool,
}

/// The assignments of a function, and the places where jitter is put on top of a capped value.
#[derive(Default)]
pub(super) struct Flows {
    values: Vec<Flow>,
    /// Lines.
    pub(super) jitter_after_cap: Vec<usize>,
    inside_cap: usize,
}

impl Flows {
    pub(super) fn of(body: &Block) -> Self {
        let mut flows = Self::default();
        flows.visit_block(body);
        flows
    }

    /// What `argument` depends on, when it is slept for in a loop of these lines; `bound` are the variables that
    /// the loop itself binds.
    pub(super) fn delay(&self, argument: &Expr, bound: &BTreeSet<String>, lines: (usize, usize)) -> Delay {
        let mut delay =
            Delay { words: words(argument), grows: grows(argument), fixed: is_constant(argument) };
        loop {
            let before = delay.words.len();
            for flow in
                self.values.iter().filter(|flow| delay.words.contains(&flow.target)).collect::<Vec<_>>()
            {
                let inside = (lines.0..=lines.1).contains(&flow.line);
                delay.grows |= inside && flow.grows;
                delay.fixed &= !inside || flow.fresh && flow.constant;
                delay.words.extend(flow.words.iter().cloned());
            }
            if delay.words.len() == before {
                break;
            }
        }
        delay.fixed &= delay.words.is_disjoint(bound);
        delay
    }

    fn add(&mut self, target: &BTreeSet<String>, value: &Expr, grows_itself: bool, fresh: bool, line: usize) {
        for target in target {
            self.values.push(Flow {
                target: target.clone(),
                line,
                words: words(value),
                grows: grows_itself || grows(value),
                capped: is_capped(value),
                constant: is_constant(value),
                fresh,
            });
        }
    }

    /// Whether the value was capped before it came here: by a call around it, or as the variable that it is.
    fn was_capped(&self, value: &Expr) -> bool {
        let as_variable = |name: &syn::Ident| self.values.iter().rev().find(|flow| name == &flow.target);
        match value {
            Expr::Path(path) => path.path.get_ident().and_then(as_variable).is_some_and(|flow| flow.capped),
            Expr::Paren(inner) => self.was_capped(&inner.expr),
            value => is_capped(value),
        }
    }
}

fn is_random(value: &Expr) -> bool {
    mentions(&words(value), RANDOM)
}

/// Whether the outermost call takes a minimum.
fn is_capped(value: &Expr) -> bool {
    match value {
        Expr::MethodCall(call) => call.method == "min" || call.method == "clamp",
        Expr::Call(call) => {
            matches!(&*call.func, Expr::Path(path) if path.path.segments.last().is_some_and(|last| last.ident == "min"))
        }
        Expr::Paren(inner) => is_capped(&inner.expr),
        _ => false,
    }
}

/// Whether the value is built of numbers, names and `Duration`'s constructors.
fn is_constant(value: &Expr) -> bool {
    match value {
        Expr::Lit(_) | Expr::Path(_) | Expr::Field(_) => true,
        Expr::Paren(inner) => is_constant(&inner.expr),
        Expr::Unary(inner) => is_constant(&inner.expr),
        Expr::Reference(inner) => is_constant(&inner.expr),
        Expr::Cast(inner) => is_constant(&inner.expr),
        Expr::Binary(binary) => is_constant(&binary.left) && is_constant(&binary.right),
        Expr::Call(call) => {
            let constructor = matches!(&*call.func, Expr::Path(path) if path.path.segments.last()
                .is_some_and(|last| last.ident.to_string().starts_with("from_") || last.ident == "new"));
            constructor && call.args.iter().all(is_constant)
        }
        Expr::MethodCall(call) => {
            matches!(call.method.to_string().as_str(), "clone" | "into") && is_constant(&call.receiver)
        }
        _ => false,
    }
}

impl Visit<'_> for Flows {
    fn visit_item(&mut self, _: &Item) {}

    fn visit_local(&mut self, local: &Local) {
        visit::visit_local(self, local);
        if let Some(init) = &local.init {
            let line = local.let_token.span.start().line;
            self.add(&words_of_pattern(&local.pat), &init.expr, false, true, line);
        }
    }

    fn visit_expr_assign(&mut self, assign: &ExprAssign) {
        visit::visit_expr_assign(self, assign);
        let line = assign.eq_token.span.start().line;
        self.add(&words(&assign.left), &assign.right, false, false, line);
    }

    fn visit_expr_binary(&mut self, binary: &ExprBinary) {
        let line = syn::spanned::Spanned::span(&binary.op).start().line;
        let adds =
            matches!(binary.op, BinOp::Add(_) | BinOp::Mul(_) | BinOp::AddAssign(_) | BinOp::MulAssign(_));
        if adds && self.inside_cap == 0 {
            let (left, right) = (&binary.left, &binary.right);
            if self.was_capped(left) && is_random(right) || self.was_capped(right) && is_random(left) {
                self.jitter_after_cap.push(line);
            }
        }
        visit::visit_expr_binary(self, binary);
        if matches!(
            binary.op,
            BinOp::AddAssign(_) | BinOp::SubAssign(_) | BinOp::MulAssign(_) | BinOp::ShlAssign(_)
        ) {
            let grows = matches!(binary.op, BinOp::MulAssign(_) | BinOp::ShlAssign(_));
            self.add(&words(&binary.left), &binary.right, grows, false, line);
        }
    }

    fn visit_expr_method_call(&mut self, call: &ExprMethodCall) {
        let caps = usize::from(call.method == "min" || call.method == "clamp");
        self.inside_cap += caps;
        visit::visit_expr_method_call(self, call);
        self.inside_cap -= caps;
    }
}
