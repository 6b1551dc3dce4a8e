//! The smells, by name.

/// How sure a smell is to be a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Worth changing: fails the lint.
    Warning,
    /// Worth a look; right in some places.
    Note,
}

/// A way in which a hand-written retry goes wrong.
#[derive(Debug)]
pub struct Rule {
    /// Its name, in kebab case.
    pub id: &'static str,
    /// How sure it is.
    pub level: Level,
    /// What is wrong.
    pub problem: &'static str,
    /// What to do instead.
    pub remedy: &'static str,
}

macro_rules! rules {
    ($($name:ident, $id:literal, $level:ident, $problem:literal, $remedy:literal;)*) => {
        $(pub(super) const $name: &Rule =
            &Rule { id: $id, level: Level::$level, problem: $problem, remedy: $remedy };)*

        /// Every rule, in the order of the docs.
        pub const ALL: &[&Rule] = &[$($name),*];
    };
}

rules! {
    FIXED_DELAY, "fixed-delay", Warning,
        "retries after the same delay every time, without jitter",
        "let the delay grow and draw it at random, so that clients that failed together do not return together";
    NO_JITTER, "no-jitter", Warning,
        "lets its delay grow and draws nothing at random",
        "draw the delay from a window, for example between nothing and the bound";
    UNCAPPED_DELAY, "uncapped-delay", Warning,
        "multiplies its delay without a cap",
        "take the smaller of the delay and a longest one";
    OVERFLOWING_DELAY, "overflowing-delay", Warning,
        "raises to the power of its attempts without a bound on the exponent",
        "use `saturating_pow` or `checked_shl`, or bound the exponent first";
    JITTER_AFTER_CAP, "jitter-after-cap", Warning,
        "adds jitter to a delay that was capped before",
        "draw inside the capped window, so that the cap holds";
    UNBOUNDED_RETRY, "unbounded-retry", Warning,
        "retries for as long as the failure lasts",
        "limit the attempts or the total time, and hand the last error on";
    NO_DELAY, "no-delay", Warning,
        "retries at once",
        "wait between attempts: what has just failed has had no time to recover";
    MESSAGE_TEXT, "message-text", Warning,
        "decides about a retry by the text of a message",
        "match on the error's kind, status or code: texts change without notice";
    RETRY_AFTER_IGNORED, "retry-after-ignored", Warning,
        "retries a 429 or 503 and reads no Retry-After",
        "wait at least as long as the server asks for, or give up";
    BLOCKING_SLEEP, "blocking-sleep", Warning,
        "blocks its thread between attempts in async code",
        "await the runtime's own sleep";
    RECURSION, "recursion", Warning,
        "retries by calling itself",
        "write a loop: its bound is visible and its stack does not grow";
    NO_DEADLINE, "no-deadline", Note,
        "limits its attempts and not the time that they take together",
        "stop when the next delay would end after a deadline, and bound each attempt by what is left";
    EVERY_ERROR, "every-error", Note,
        "retries without a look at the error",
        "retry what can get better; hand on at once what cannot";
}
