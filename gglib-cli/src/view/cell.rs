//! What stands in the cells of a table, short enough for 80 columns.

use serde_json::Value;

/// `text` in at most `width` columns, with an ellipsis for what is cut off. Control characters become blanks: what an
/// engine has printed must not command the terminal.
pub(crate) fn fit(text: &str, width: usize) -> String {
    let clean = text.chars().map(|char| if char.is_control() { ' ' } else { char });
    if text.chars().count() <= width {
        return clean.collect();
    }
    clean.take(width.saturating_sub(1)).chain(['…']).collect()
}

/// `text` in at most `lines` lines of `width` columns, broken between words.
pub(crate) fn wrap(text: &str, width: usize, lines: usize) -> Vec<String> {
    let mut wrapped: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        let is_last = wrapped.len() == lines;
        match wrapped.last_mut() {
            // The last line takes all that is left, and then shows that it does not fit.
            Some(line) if is_last || line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => wrapped.push(word.to_owned()),
        }
    }
    wrapped.iter().map(|line| fit(line, width)).collect()
}

pub(crate) fn left(text: &str, width: usize) -> String {
    format!("{:<width$}", fit(text, width))
}

pub(crate) fn right(text: &str, width: usize) -> String {
    format!("{:>width$}", fit(text, width))
}

/// A time in milliseconds, or a dash.
pub(crate) fn millis(value: &Value) -> String {
    match value.as_u64() {
        None => "-".to_owned(),
        Some(millis @ 0..1000) => format!("{millis}ms"),
        Some(millis @ 1000..60_000) => format!("{}.{}s", millis / 1000, millis % 1000 / 100),
        Some(millis) => seconds(millis / 1000),
    }
}

/// A time in seconds, by its largest unit.
pub(super) fn seconds(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7200 => format!("{}m", seconds / 60),
        7200..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// How long ago `then` was.
pub(super) fn ago(then: u64, now: u64) -> String {
    seconds(now.saturating_sub(then))
}

/// Memory of an engine, that of GPUs included; or a dash.
pub(super) fn memory(value: &Value) -> String {
    let bytes = |kind: &str| value[kind].as_u64();
    match (bytes("ram"), bytes("vram")) {
        (None, _) | (_, None) => "-".to_owned(),
        (Some(ram), Some(vram)) => size(ram.saturating_add(vram)),
    }
}

fn size(bytes: u64) -> String {
    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;
    if bytes < GIB {
        format!("{} MiB", bytes.div_ceil(MIB))
    } else {
        let tenths = u128::from(bytes) * 10 / u128::from(GIB);
        format!("{}.{} GiB", tenths / 10, tenths % 10)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_does_not_fit_ends_in_an_ellipsis_and_commands_no_terminal() {
        assert_eq!(fit("smollm2", 7), "smollm2");
        assert_eq!(fit("smollm2", 6), "smoll…");
        assert_eq!(fit("größer", 6), "größer");
        assert_eq!(fit("a\u{1b}[2Jb\nc", 20), "a [2Jb c");
    }

    #[test]
    fn a_long_text_is_broken_between_words_and_cut_in_its_last_line() {
        assert_eq!(wrap("one two  three\nfour", 8, 3), ["one two", "three", "four"]);
        assert_eq!(wrap("one two three four", 8, 2), ["one two", "three f…"]);
        assert_eq!(wrap("unbreakable a", 8, 2), ["unbreak…", "a"]);
        assert_eq!(wrap("", 8, 2), [""; 0]);
    }

    #[test]
    fn times_and_sizes_have_one_unit() {
        let times = [0, 999, 1000, 12_345, 59_999, 60_000, 7_199_000, 90_000_000, u64::MAX]
            .map(|time| millis(&json!(time)));
        assert_eq!(times, ["0ms", "999ms", "1.0s", "12.3s", "59.9s", "60s", "119m", "25h", "213503982334d"]);
        assert_eq!(millis(&json!(null)), "-");
        let sizes = [1, 1 << 30, 13_000_000_000, u64::MAX].map(size);
        assert_eq!(sizes, ["1 MiB", "1.0 GiB", "12.1 GiB", "17179869183.9 GiB"]);
        assert_eq!(memory(&json!({ "ram": 1 << 30, "vram": 1 << 30 })), "2.0 GiB");
        assert_eq!(memory(&json!(null)), "-");
    }
}
