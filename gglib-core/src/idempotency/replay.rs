//! What one run has given so far, for readers that come at different times.

use std::collections::{BTreeMap, VecDeque};

/// Items in their order, read by any number of readers, each from the beginning.
///
/// Everything is held while it takes at most `limit` bytes. A run that gives more can go on, but nobody can join it any
/// more: only what its readers have not taken yet is held from then on, and [`is_full`](Self::is_full) asks the run to
/// wait while the slowest of them is behind by more than `limit`.
///
/// ```
/// use gglib_core::idempotency::Replay;
///
/// let mut replay = Replay::new(10);
/// let early = replay.join().expect("all of it is there");
/// replay.push("one", 5);
/// let late = replay.join().expect("still");
/// assert_eq!([replay.next(early), replay.next(late), replay.next(late)], [Some("one"), Some("one"), None]);
/// replay.push("two", 6);
/// assert_eq!(replay.join(), None);
/// assert_eq!(replay.next(early), Some("two"));
/// ```
#[derive(Clone, Debug)]
pub struct Replay<T> {
    limit: usize,
    /// What is held, and how many bytes each takes.
    items: VecDeque<(T, usize)>,
    /// How many are not held any more.
    dropped: usize,
    bytes: usize,
    /// How many each reader has taken.
    readers: BTreeMap<ReaderId, usize>,
    last: ReaderId,
}

/// A reader of one [`Replay`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReaderId(u64);

impl<T: Clone> Replay<T> {
    /// Empty, and without readers. Holds `limit` bytes.
    pub fn new(limit: usize) -> Self {
        let (items, readers) = (VecDeque::new(), BTreeMap::new());
        Self { limit, items, dropped: 0, bytes: 0, readers, last: ReaderId(0) }
    }

    /// A reader from the beginning; `None` when that is not held any more.
    pub fn join(&mut self) -> Option<ReaderId> {
        if !self.is_whole() {
            return None;
        }
        self.last.0 += 1;
        self.readers.insert(self.last, 0);
        Some(self.last)
    }

    /// The reader has gone; nothing is held for it any more.
    pub fn part(&mut self, reader: ReaderId) {
        self.readers.remove(&reader);
        self.trim();
    }

    /// The reader's next item; `None` when it has taken all there is, and for one that has parted.
    pub fn next(&mut self, reader: ReaderId) -> Option<T> {
        let taken = self.readers.get_mut(&reader)?;
        let (item, _) = self.items.get(*taken - self.dropped)?;
        let item = item.clone();
        *taken += 1;
        self.trim();
        Some(item)
    }

    /// Appends an item that takes so many bytes.
    pub fn push(&mut self, item: T, bytes: usize) {
        self.items.push_back((item, bytes));
        self.bytes = self.bytes.saturating_add(bytes);
        self.trim();
    }

    /// Whether the run should wait for the slowest reader.
    pub fn is_full(&self) -> bool {
        self.bytes > self.limit
    }

    /// The bytes that are held.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether all of it is held, so that it can be read from the beginning.
    pub fn is_whole(&self) -> bool {
        self.dropped == 0 && !self.is_full()
    }

    /// Drops what nobody will read, once it is too much to hold for readers that may come.
    fn trim(&mut self) {
        if self.is_whole() {
            return;
        }
        let taken = self.readers.values().copied().min().unwrap_or(self.dropped + self.items.len());
        while self.dropped < taken
            && let Some((_, bytes)) = self.items.pop_front()
        {
            self.dropped += 1;
            self.bytes = self.bytes.saturating_sub(bytes);
        }
    }
}
