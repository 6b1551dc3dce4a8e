//! What an expression calls, and whether it makes a timer.

use proc_macro2::Span;
use syn::{Expr, ExprField, Member};

use super::super::{tokens, waits};
use super::Body;

impl Body<'_> {
    /// Name and place of what a call calls.
    pub(super) fn callee(&self, function: &Expr) -> Option<(String, Span)> {
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
    pub(super) fn is_timer(&self, value: &Expr) -> bool {
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
