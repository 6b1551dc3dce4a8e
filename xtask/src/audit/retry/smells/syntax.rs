//! Questions to ask of an expression.

use std::collections::BTreeSet;

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};
use syn::{
    BinOp, Block, Expr, ExprBinary, ExprBreak, ExprContinue, ExprMethodCall, ExprReturn, Lit, Macro, Pat,
    Stmt,
};

/// The names and numbers in a piece of code, macros included.
#[derive(Default)]
struct Words(BTreeSet<String>);

impl Visit<'_> for Words {
    fn visit_ident(&mut self, ident: &syn::Ident) {
        self.0.insert(ident.to_string());
    }

    fn visit_lit_int(&mut self, number: &syn::LitInt) {
        self.0.insert(number.base10_digits().to_owned());
    }

    fn visit_macro(&mut self, mac: &Macro) {
        self.visit_path(&mac.path);
        words_of_tokens(mac.tokens.clone(), &mut self.0);
    }
}

fn words_of_tokens(tokens: TokenStream, found: &mut BTreeSet<String>) {
    for token in tokens {
        match token {
            TokenTree::Ident(ident) => _ = found.insert(ident.to_string()),
            TokenTree::Literal(literal) => _ = found.insert(literal.to_string()),
            TokenTree::Group(group) => words_of_tokens(group.stream(), found),
            TokenTree::Punct(_) => {}
        }
    }
}

pub(super) fn words(code: &Expr) -> BTreeSet<String> {
    let mut words = Words::default();
    words.visit_expr(code);
    words.0
}

pub(super) fn words_of_block(code: &Block) -> BTreeSet<String> {
    let mut words = Words::default();
    words.visit_block(code);
    words.0
}

pub(super) fn words_of_pattern(pattern: &Pat) -> BTreeSet<String> {
    let mut words = Words::default();
    words.visit_pat(pattern);
    words.0
}

/// Whether one of the words, in lower case, holds one of the parts.
pub(super) fn mentions(words: &BTreeSet<String>, parts: &[&str]) -> bool {
    words.iter().any(|word| {
        let word = word.to_lowercase();
        parts.iter().any(|part| word.contains(part))
    })
}

/// Whether the code multiplies, shifts or raises something.
pub(super) fn grows(code: &Expr) -> bool {
    let mut found = Growth(false);
    found.visit_expr(code);
    found.0
}

struct Growth(bool);

impl Visit<'_> for Growth {
    fn visit_expr_binary(&mut self, binary: &ExprBinary) {
        self.0 |=
            matches!(binary.op, BinOp::Mul(_) | BinOp::MulAssign(_) | BinOp::Shl(_) | BinOp::ShlAssign(_));
        visit::visit_expr_binary(self, binary);
    }

    fn visit_expr_method_call(&mut self, call: &ExprMethodCall) {
        let name = call.method.to_string();
        self.0 |= name.contains("mul") || name.contains("pow") || name.contains("shl");
        visit::visit_expr_method_call(self, call);
    }
}

/// Whether control never comes out behind the code: it returns, breaks or panics. `continue` stays in the loop.
pub(super) fn leaves(code: &Expr) -> bool {
    match code {
        Expr::Return(_) | Expr::Break(_) => true,
        Expr::Block(block) => block_leaves(&block.block),
        Expr::Unsafe(block) => block_leaves(&block.block),
        Expr::If(branch) => {
            block_leaves(&branch.then_branch)
                && branch.else_branch.as_ref().is_some_and(|(_, other)| leaves(other))
        }
        Expr::Match(choice) => choice.arms.iter().all(|arm| leaves(&arm.body)),
        Expr::Try(inner) => {
            matches!(&*inner.expr, Expr::Call(call) if matches!(&*call.func, Expr::Path(path) if path.path.is_ident("Err")))
        }
        Expr::Macro(call) => macro_leaves(&call.mac),
        _ => false,
    }
}

pub(super) fn block_leaves(block: &Block) -> bool {
    block.stmts.iter().any(|statement| match statement {
        Stmt::Expr(expr, _) => leaves(expr),
        Stmt::Macro(call) => macro_leaves(&call.mac),
        _ => false,
    })
}

fn macro_leaves(mac: &Macro) -> bool {
    let name = mac.path.segments.last().map(|last| last.ident.to_string()).unwrap_or_default();
    matches!(name.as_str(), "panic" | "bail" | "unreachable" | "todo" | "unimplemented")
}

/// The variant that a pattern names at its top: `Err` for `Err(_)`; empty for others.
pub(super) fn variant(pattern: &Pat) -> String {
    let path = match pattern {
        Pat::TupleStruct(pattern) => &pattern.path,
        Pat::Path(pattern) => &pattern.path,
        Pat::Or(either) => return either.cases.first().map(variant).unwrap_or_default(),
        Pat::Guard(guarded) => return variant(&guarded.pat),
        Pat::Reference(inner) => return variant(&inner.pat),
        _ => return String::new(),
    };
    path.segments.last().map(|last| last.ident.to_string()).unwrap_or_default()
}

/// Whether the code is a call of a function that says by its number how it went: `lock(fd) == 0`.
pub(super) fn is_numbered(code: &Expr) -> Option<bool> {
    let Expr::Binary(binary) = code else { return None };
    let succeeds = match binary.op {
        BinOp::Eq(_) => true,
        BinOp::Ne(_) => false,
        _ => return None,
    };
    let asks = |side: &Expr| match side {
        Expr::Unsafe(block) => matches!(&block.block.stmts[..], [Stmt::Expr(Expr::Call(_), None)]),
        side => matches!(side, Expr::Call(_)),
    };
    let zero = |side: &Expr| matches!(side, Expr::Lit(literal) if matches!(&literal.lit, Lit::Int(number) if number.base10_digits() == "0"));
    let sides = [(&binary.left, &binary.right), (&binary.right, &binary.left)];
    sides.into_iter().any(|(call, number)| asks(call) && zero(number)).then_some(succeeds)
}

/// Whether control leaves the straight way anywhere in the code: it returns, breaks or begins another turn.
pub(super) fn turns_away(code: &Block) -> bool {
    struct Turns(bool);
    impl Visit<'_> for Turns {
        fn visit_expr_return(&mut self, _: &ExprReturn) {
            self.0 = true;
        }

        fn visit_expr_break(&mut self, _: &ExprBreak) {
            self.0 = true;
        }

        fn visit_expr_continue(&mut self, _: &ExprContinue) {
            self.0 = true;
        }
    }
    let mut turns = Turns(false);
    turns.visit_block(code);
    turns.0
}

/// Whether a call with this name stands anywhere in the code.
pub(super) fn calls(code: &Expr, names: &[&str]) -> bool {
    let words = words(code);
    names.iter().any(|name| words.contains(*name))
}
