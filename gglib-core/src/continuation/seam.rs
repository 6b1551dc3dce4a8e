//! Stop strings that begin in what was delivered and end in what comes.

/// Looks for stop strings across the seam. Those that lie behind it altogether are the engine's affair.
///
/// Where two of them overlap, the engine may end with the one and never show the end of the other; what was held back
/// is then shown rather than lost.
#[derive(Debug)]
pub(super) struct Seam {
    /// The end of the delivered text, and what has come since.
    text: String,
    /// Where the delivered part of it ends.
    border: usize,
    /// Where what has been passed on ends.
    passed: usize,
    /// Empty once no stop string can begin before the seam any more.
    stops: Vec<String>,
}

/// What becomes of new text.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is passed on, with what was held back before.
    Pass(String),
    /// It is held back: it may be the rest of a stop string.
    Hold,
    /// It completes a stop string, which is not part of the answer: the answer has ended.
    Stop,
}

impl Seam {
    pub(super) fn new(delivered: &str, stops: &[String]) -> Self {
        let longest = stops.iter().map(String::len).max().unwrap_or(0);
        let tail = delivered.ceil_char_boundary(delivered.len().saturating_sub(longest.saturating_sub(1)));
        let text = delivered[tail..].to_owned();
        Self { border: text.len(), passed: text.len(), text, stops: stops.to_vec() }
    }

    pub(super) fn take(&mut self, new: &str) -> Verdict {
        if self.stops.is_empty() {
            return Verdict::Pass(new.to_owned());
        }
        self.text.push_str(new);
        let (mut complete, mut possible) = (false, false);
        for begin in (0..self.border).filter(|&begin| self.text.is_char_boundary(begin)) {
            let rest = &self.text[begin..];
            for stop in &self.stops {
                complete |= rest.starts_with(stop.as_str()) && begin + stop.len() > self.border;
                possible |= stop.len() > rest.len() && stop.starts_with(rest);
            }
        }
        if complete {
            Verdict::Stop
        } else if possible {
            Verdict::Hold
        } else {
            self.stops.clear();
            Verdict::Pass(self.finish().unwrap_or_default())
        }
    }

    /// What is held back, when nothing more comes.
    pub(super) fn finish(&mut self) -> Option<String> {
        let held = self.text.split_off(self.passed);
        Some(held).filter(|held| !held.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seam(delivered: &str, stops: &[&str]) -> Seam {
        Seam::new(delivered, &stops.iter().map(ToString::to_string).collect::<Vec<_>>())
    }

    #[test]
    fn a_stop_string_is_completed_by_what_comes_and_never_shown() {
        let mut seam = seam("one\nUs", &["\nUser:"]);
        assert_eq!(seam.take("er"), Verdict::Hold);
        assert_eq!(seam.take(": hi"), Verdict::Stop);
    }

    #[test]
    fn what_turns_out_otherwise_is_passed_on_whole() {
        let mut seam = seam("one\nUs", &["\nUser:", "sea"]);
        assert_eq!(seam.take("e"), Verdict::Hold);
        assert_eq!(seam.take(" it"), Verdict::Pass("e it".to_owned()));
        assert_eq!(seam.take("\nUser:"), Verdict::Pass("\nUser:".to_owned()), "the engine's affair");
    }

    #[test]
    fn a_stop_string_that_lies_in_the_delivered_text_is_past() {
        let mut seam = seam("a.b", &["a.", "x-long-stop-string"]);
        assert_eq!(seam.take("c"), Verdict::Pass("c".to_owned()));
    }

    #[test]
    fn what_is_held_at_the_end_is_text() {
        let mut seam = seam("é🌱", &["🌱🌱🌱"]);
        assert_eq!(seam.take("🌱"), Verdict::Hold);
        assert_eq!(seam.finish().as_deref(), Some("🌱"));
        assert_eq!(seam.finish(), None);
    }
}
