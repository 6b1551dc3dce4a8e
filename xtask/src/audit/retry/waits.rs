//! The calls that wait for time to pass.

/// A function or method by which code waits.
struct Wait {
    name: &'static str,
    /// The least number of arguments, the receiver counted: tells a wait from a getter of the same name.
    arguments: usize,
    needs: Needs,
}

/// What makes the call a wait.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Needs {
    /// Nothing more: it blocks, or makes a timer that nobody makes for another purpose.
    Nothing,
    /// An `.await` around it, or a macro that may await it.
    Await,
}

const WAITS: &[Wait] = &[
    Wait { name: "park_timeout", arguments: 1, needs: Needs::Nothing },
    Wait { name: "poll_tick", arguments: 2, needs: Needs::Nothing },
    Wait { name: "recv_timeout", arguments: 2, needs: Needs::Nothing },
    Wait { name: "sleep", arguments: 1, needs: Needs::Nothing },
    Wait { name: "sleep_until", arguments: 1, needs: Needs::Nothing },
    Wait { name: "wait_timeout", arguments: 2, needs: Needs::Nothing },
    Wait { name: "wait_timeout_while", arguments: 3, needs: Needs::Nothing },
    Wait { name: "pause", arguments: 1, needs: Needs::Await },
    Wait { name: "tick", arguments: 1, needs: Needs::Await },
    Wait { name: "timeout", arguments: 2, needs: Needs::Await },
    Wait { name: "timeout_at", arguments: 2, needs: Needs::Await },
];

/// Functions that make a ticking timer; the wait is where it is awaited.
const TICKERS: &[&str] = &["interval", "interval_at"];

/// Whether a call of `name` with `arguments` (the receiver counted) waits; `awaited` says whether it stands
/// under an `.await` or in a macro.
pub(super) fn is_wait(name: &str, arguments: usize, awaited: bool) -> bool {
    WAITS.iter().any(|wait| {
        wait.name == name && arguments >= wait.arguments && (awaited || wait.needs == Needs::Nothing)
    })
}

/// Whether the call makes a timer that waits once it is awaited.
pub(super) fn makes_timer(name: &str, arguments: usize) -> bool {
    TICKERS.contains(&name) && arguments >= 1 || is_wait(name, arguments, true)
}

/// Whether a value of this name is taken for a timer when it is awaited: `(&mut self.sleep).await`.
pub(super) fn names_timer(name: &str) -> bool {
    matches!(name, "sleep" | "sleep_until")
}

/// Whether a macro of this name awaits what stands in it.
pub(super) fn awaits(macro_name: &str) -> bool {
    macro_name.contains("select") || macro_name.contains("join")
}

/// Whether a wait of this name only bounds other work, and ends with it.
pub(super) fn bounds(name: &str) -> bool {
    name.contains("timeout") && name != "park_timeout"
}

/// Whether a function of this name asks the retry policy.
pub(super) fn is_decide(name: &str) -> bool {
    matches!(name, "decide" | "decide_with")
}

/// Whether a method of this name drives a `RetrySequence`; `arguments` counts the receiver and tells it from
/// callbacks of the same name.
pub(super) fn drives_sequence(name: &str, arguments: usize) -> bool {
    matches!((name, arguments), ("on_failure", 5) | ("on_wake", 3))
}

/// Whether a path names what makes or drives a `RetrySequence`, and not merely what it says of itself.
pub(super) fn makes_sequence(path: &[String]) -> bool {
    match path {
        [.., owner, name] => {
            owner == "RetrySequence" && matches!(name.as_str(), "begin" | "on_failure" | "on_wake")
        }
        _ => false,
    }
}
