//! Values with units, and references to the environment.

use std::time::Duration;

/// 100 years. Clocks cannot tell a moment that is any number of years ahead, and sums of bounds are such moments too.
const LONGEST: Duration = Duration::from_hours(100 * 8766);

/// A duration such as `"30s"`, `"1m 30s"` or `"250ms"`.
pub(super) fn duration(text: &str) -> Option<Duration> {
    humantime::parse_duration(text).ok()
}

/// What a good [`above_zero`] looks like.
pub(super) const ABOVE_ZERO: &str = "a duration above zero and of at most 100 years, such as \"30s\"";

/// A duration above zero that a clock can add: each that is configured bounds something.
pub(super) fn above_zero(text: &str) -> Option<Duration> {
    duration(text).filter(|duration| !duration.is_zero() && *duration <= LONGEST)
}

/// A number of bytes such as `"64MiB"`, `"512 KiB"`, `"1GB"` or `"1048576"`.
pub(super) fn size(text: &str) -> Option<u64> {
    let text = text.trim();
    let split = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let unit: u64 = match unit.trim() {
        "" | "B" => 1,
        "KiB" => 1 << 10,
        "MiB" => 1 << 20,
        "GiB" => 1 << 30,
        "TiB" => 1 << 40,
        "kB" | "KB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "TB" => 1_000_000_000_000,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(unit)
}

/// Replaces each `${env:NAME}` in `text`; the name of a variable that is not set is the error.
pub(super) fn expand_env(text: &str, lookup: &dyn Fn(&str) -> Option<String>) -> Result<String, String> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${env:") {
        let Some((name, tail)) = after.split_once('}') else {
            break;
        };
        out.push_str(before);
        out.push_str(&lookup(name).ok_or_else(|| name.to_owned())?);
        rest = tail;
    }
    out.push_str(rest);
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_binary_and_decimal_units() {
        assert_eq!(size("64MiB"), Some(64 << 20));
        assert_eq!(size(" 2 GB "), Some(2_000_000_000));
        assert_eq!(size("17"), Some(17));
        for bad in ["", "MiB", "-1", "1.5GiB", "1XiB", "99999999999999999999", "99999999999TiB"] {
            assert_eq!(size(bad), None, "{bad}");
        }
    }

    #[test]
    fn environment_references_are_replaced_everywhere_and_a_missing_one_is_named() {
        let lookup = |name: &str| (name == "KEY").then(|| "${env:KEY}".to_owned());
        assert_eq!(expand_env("a-${env:KEY}-${env:KEY}", &lookup).unwrap(), "a-${env:KEY}-${env:KEY}");
        assert_eq!(expand_env("${env:OTHER}", &lookup).unwrap_err(), "OTHER");
        assert_eq!(expand_env("${env:KEY", &lookup).unwrap(), "${env:KEY");
    }
}
