//! Models in several files.

/// Which part of a model a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Split {
    /// Counted from 0.
    pub number: u32,
    /// Of all parts; at least 2.
    pub count: u32,
}

/// Longest model in parts.
const MOST: u32 = 1024;

impl Split {
    pub(super) fn new(number: u64, count: u64) -> Option<Self> {
        let count = u32::try_from(count).ok().filter(|count| (2..=MOST).contains(count))?;
        let number = u32::try_from(number).ok().filter(|number| *number < count)?;
        Some(Self { number, count })
    }

    /// The names of all parts, the first one first, when `name` is that of one of them; the engine is given the
    /// first, and finds the others by their names (llama.cpp's `gguf-split`).
    ///
    /// ```
    /// use gglib_core::model::gguf::Split;
    ///
    /// let names = Split::names("big-00001-of-00002.gguf").unwrap();
    /// assert_eq!(names, ["big-00001-of-00002.gguf", "big-00002-of-00002.gguf"]);
    /// assert_eq!(Split::names("small.gguf"), None);
    /// ```
    pub fn names(name: &str) -> Option<Vec<String>> {
        let (rest, count) = name.strip_suffix(".gguf")?.rsplit_once("-of-")?;
        let (stem, number) = rest.rsplit_once('-')?;
        let parse = |digits: &str| {
            let plain = digits.len() == 5 && digits.bytes().all(|digit| digit.is_ascii_digit());
            plain.then(|| digits.parse::<u32>().ok()).flatten()
        };
        let (number, count) = (parse(number)?, parse(count)?);
        let possible = (2..=MOST).contains(&count) && (1..=count).contains(&number);
        possible.then(|| (1..=count).map(|part| format!("{stem}-{part:05}-of-{count:05}.gguf")).collect())
    }
}
