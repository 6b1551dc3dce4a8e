//! Which call of an answer a fragment of `tool_calls` belongs to.

use std::borrow::Cow;

/// What a fragment, or a call that fragments have made up so far, goes by.
///
/// Blank counts as absent: some servers blank out in later fragments what the first one has said.
#[derive(Clone, Debug)]
pub(crate) struct CallLabel<'a> {
    index: Option<u64>,
    id: Option<Cow<'a, str>>,
    names_function: bool,
}

impl<'a> CallLabel<'a> {
    pub(crate) fn new(index: Option<u64>, id: Option<Cow<'a, str>>, name: Option<&str>) -> Self {
        let names_function = name.is_some_and(|name| !name.is_empty());
        Self { index, id: id.filter(|id| !id.is_empty()), names_function }
    }

    /// Where among `calls` the one is that this fragment continues; `None` when it begins another.
    ///
    /// Without an `index`, a fragment with a new `id` begins a call and any other continues the last one. With one it
    /// belongs to the call of that index, unless it names a function and has another `id`: some servers number all
    /// calls 0.
    pub(crate) fn position_in<'c, C>(&self, calls: C) -> Option<usize>
    where
        C: DoubleEndedIterator<Item = CallLabel<'c>> + ExactSizeIterator,
    {
        let mut calls = calls.enumerate();
        let found = match (self.index, &self.id) {
            (Some(_), _) => calls
                .rfind(|(_, call)| call.index == self.index)
                .filter(|(_, call)| !self.begins_another(call)),
            (None, Some(_)) => calls.find(|(_, call)| call.id == self.id),
            (None, None) => calls.next_back(),
        };
        found.map(|(position, _)| position)
    }

    fn begins_another(&self, call: &CallLabel<'_>) -> bool {
        self.names_function && self.id.is_some() && call.id.is_some() && self.id != call.id
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn label(index: Option<u64>, id: &'static str, name: &str) -> CallLabel<'static> {
        CallLabel::new(index, Some(id.into()), Some(name))
    }

    #[test]
    fn a_fragment_continues_the_call_of_its_index_or_id_else_the_last_one() {
        let calls =
            || [label(Some(0), "a", "f"), label(Some(0), "b", "g"), label(Some(2), "", "h")].into_iter();
        for (fragment, expected) in [
            (label(Some(2), "", ""), Some(2)),
            (label(Some(0), "", ""), Some(1)),
            (label(Some(0), "", "g"), Some(1)),
            (label(Some(0), "c", ""), Some(1)),
            (label(Some(0), "c", "g"), None),
            (label(Some(2), "c", "h"), Some(2)),
            (label(Some(1), "a", "f"), None),
            (label(None, "a", ""), Some(0)),
            (label(None, "c", ""), None),
            (label(None, "", "h"), Some(2)),
            (CallLabel::new(None, None, None), Some(2)),
        ] {
            assert_eq!(fragment.position_in(calls()), expected, "{fragment:?}");
        }
        assert_eq!(label(None, "", "").position_in([].into_iter()), None);
    }
}
