//! Where values end, in text that is known to be valid JSON: nothing is checked here.

/// How many brackets open in `text`, those in strings included.
pub(super) fn brackets(text: &str) -> usize {
    // A count that fits a byte compiles to vector instructions.
    let count = |run: &[u8]| run.iter().map(|byte| u8::from(matches!(byte, b'{' | b'['))).sum::<u8>();
    text.as_bytes().chunks(u8::MAX.into()).map(|run| usize::from(count(run))).sum()
}

/// The length of what stands between two values.
pub(super) fn gap_len(text: &str) -> usize {
    text.bytes().position(|byte| !is_gap(byte)).unwrap_or(text.len())
}

/// The length of the value that `text` begins with; 0 if there is none.
pub(super) fn value_len(text: &str) -> usize {
    let text = text.as_bytes();
    match text.first() {
        Some(b'"') => string_len(text),
        Some(b'{' | b'[') => container_len(text),
        _ => text.iter().position(|byte| is_gap(*byte)).unwrap_or(text.len()),
    }
}

fn is_gap(byte: u8) -> bool {
    matches!(byte, b',' | b':' | b' ' | b'\n' | b'\r' | b'\t')
}

fn container_len(text: &[u8]) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while let Some(byte) = text.get(at) {
        match byte {
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth -= 1,
            b'"' => at += string_len(&text[at..]) - 1,
            _ => {}
        }
        at += 1;
        if depth == 0 {
            break;
        }
    }
    at
}

fn string_len(text: &[u8]) -> usize {
    let mut at = 1;
    while let Some(ahead) = text[at..].iter().position(|byte| matches!(byte, b'"' | b'\\')) {
        at += ahead;
        if text[at] == b'"' {
            return at + 1;
        }
        at += 2;
    }
    text.len()
}
