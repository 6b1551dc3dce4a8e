//! The prefix that an engine repeats before it goes on.

/// Takes the repetition of the delivered text out of a second engine's answer, whether it comes whole, in parts or
/// not at all.
///
/// llama-server (b10434) repeats it in the chunk that tells of the first progress on the prompt: text that comes with
/// progress cannot be new, and text that comes later, after such a chunk without text, is. Of engines that tell no
/// progress only the text itself can say which it is: what begins with all that was delivered, is a repetition.
#[derive(Debug)]
pub(super) struct Echo {
    /// What may still be repeated.
    rest: Option<Box<str>>,
    /// How many bytes of it have come.
    seen: usize,
}

impl Echo {
    pub(super) fn of(delivered: &str) -> Self {
        Self { rest: Some(delivered.into()), seen: 0 }
    }

    /// The engine has told of its progress: a repetition would have come with that.
    pub(super) fn is_late(&mut self) {
        if self.seen == 0 {
            self.rest = None;
        }
    }

    /// What is new of `text`; none while it may be a repetition.
    pub(super) fn take(&mut self, text: &str) -> Option<String> {
        let Some(expected) = &self.rest else { return Some(text.to_owned()) };
        let missing = &expected[self.seen..];
        if missing.starts_with(text) && missing != text {
            self.seen += text.len();
            return None;
        }
        let new = match text.strip_prefix(missing) {
            Some(new) => new.to_owned(),
            None => expected[..self.seen].to_owned() + text,
        };
        self.rest = None;
        Some(new).filter(|new| !new.is_empty())
    }

    /// What was taken for the beginning of a repetition, when the answer ends in it.
    pub(super) fn finish(&mut self) -> Option<String> {
        let expected = self.rest.take()?;
        Some(expected[..self.seen].to_owned()).filter(|text| !text.is_empty())
    }
}
