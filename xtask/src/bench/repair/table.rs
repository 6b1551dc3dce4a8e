//! The figures of many turns.

#![expect(clippy::print_stdout, reason = "a bench prints")]

use super::prompts::Verdict;

/// What repair made of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// Nothing, or it is off.
    Passed,
    /// The packaging was mended.
    Mended,
    /// A second request put it right.
    Repaired,
    /// A second request did not.
    StillBroken,
    /// No second request was made, because others had come to nothing.
    Refused,
}

/// One turn.
#[derive(Clone, Copy)]
pub(super) struct Turn {
    pub(super) verdict: Verdict,
    pub(super) outcome: Outcome,
    pub(super) seconds: f64,
    /// Generated, by all requests.
    pub(super) tokens: u64,
}

/// The turns of one endpoint at one temperature.
#[derive(Default)]
pub(super) struct Cell {
    turns: Vec<Turn>,
}

impl Cell {
    pub(super) fn push(&mut self, turn: Turn) {
        self.turns.push(turn);
    }

    fn with(&self, outcome: Outcome) -> usize {
        self.turns.iter().filter(|turn| turn.outcome == outcome).count()
    }

    fn judged(&self, verdict: Verdict) -> usize {
        self.turns.iter().filter(|turn| turn.verdict == verdict).count()
    }

    fn tokens(&self) -> f64 {
        let tokens: u64 = self.turns.iter().map(|turn| turn.tokens).sum();
        count(usize::try_from(tokens).unwrap_or(usize::MAX)) / count(self.turns.len())
    }

    fn seconds(&self) -> f64 {
        self.turns.iter().map(|turn| turn.seconds).sum::<f64>() / count(self.turns.len())
    }

    /// Mean seconds of all turns that `counts`, above those of the same turns in `other`.
    fn seconds_above(&self, other: &Self, counts: impl Fn(&Turn) -> bool) -> f64 {
        let turns: Vec<f64> = self
            .turns
            .iter()
            .zip(&other.turns)
            .filter(|(turn, _)| counts(turn))
            .map(|(turn, other)| turn.seconds - other.seconds)
            .collect();
        turns.iter().sum::<f64>() / count(turns.len())
    }
}

#[expect(clippy::cast_precision_loss, reason = "these are small numbers")]
fn count(count: usize) -> f64 {
    count as f64
}

pub(super) fn print_head() {
    println!(
        "   T  repair       valid   right  no call  failed | mended  again  repaired  refused | tokens      s   above  above, asked again"
    );
}

/// One line; `without` has the same turns without repair.
pub(super) fn print_row(temperature: f64, name: &str, cell: &Cell, without: &Cell) {
    let share = |part: usize| 100.0 * count(part) / count(cell.turns.len());
    let right = cell.judged(Verdict::Right);
    let repaired = cell.with(Outcome::Repaired);
    let again = repaired + cell.with(Outcome::StillBroken);
    let was_asked_again = |turn: &Turn| matches!(turn.outcome, Outcome::Repaired | Outcome::StillBroken);
    let each = cell.seconds_above(without, was_asked_again);
    println!(
        "{temperature:>4.1}  {name:<11} {:>5.0} % {:>5.0} % {:>8} {:>7} | {:>6} {again:>6} {repaired:>9} {:>8} | {:>6.1} {:>6.2} {:>+7.2}  {}",
        share(right + cell.judged(Verdict::Valid)),
        share(right),
        cell.judged(Verdict::NoCall),
        cell.judged(Verdict::Failed),
        cell.with(Outcome::Mended),
        cell.with(Outcome::Refused),
        cell.tokens(),
        cell.seconds(),
        cell.seconds_above(without, |_| true),
        if again == 0 { String::new() } else { format!("{each:>+7.2}") },
    );
}
