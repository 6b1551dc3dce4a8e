//! The whole terminal as a screen, given back as it was.

use std::io::{self, IsTerminal, Read, Stdout, stdin, stdout};

use rustix::termios::{
    LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcgetwinsize, tcsetattr,
};
use tokio::sync::oneshot;

use crate::ui;

// ECMA-48 and xterm: the alternate screen, the cursor, and erasing.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[2J";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";
const HOME: &str = "\x1b[H";
const ERASE_LINE: &str = "\x1b[K";
const ERASE_BELOW: &str = "\x1b[J";

/// The alternate screen of the terminal at standard output, until it is dropped.
pub(crate) struct Screen(Stdout);

impl Screen {
    pub(crate) fn open() -> Self {
        ui::part(ENTER);
        Self(stdout())
    }

    /// Replaces what is shown, as far as it fits.
    pub(crate) fn draw(&self, text: &str) {
        let size = tcgetwinsize(&self.0).ok().filter(|size| size.ws_row > 0 && size.ws_col > 0);
        let (rows, columns) = size.map_or((24, 80), |size| (size.ws_row.into(), size.ws_col.into()));
        ui::part(&frame(text, rows, columns));
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        ui::part(LEAVE);
    }
}

/// The last line stays, whatever has to be left out before it.
fn frame(text: &str, rows: usize, columns: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let (last, body) = lines.split_last().map_or(("", &[][..]), |(last, body)| (*last, body));
    let shown = body.iter().take(rows.saturating_sub(1)).chain([&last]);
    let cut = |line: &&str| line.chars().take(columns).collect::<String>() + ERASE_LINE;
    HOME.to_owned() + &shown.map(cut).collect::<Vec<_>>().join("\r\n") + ERASE_BELOW
}

/// Single keys of the terminal at standard input, until it is dropped. Ctrl-C stays a signal.
pub(crate) struct Keys {
    before: Termios,
    quit: oneshot::Receiver<()>,
}

impl Keys {
    /// `None` if standard input is no terminal: then there are no keys.
    pub(crate) fn listen() -> io::Result<Option<Self>> {
        if !stdin().is_terminal() {
            return Ok(None);
        }
        let before = tcgetattr(stdin())?;
        let mut single = before.clone();
        single.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
        single.special_codes[SpecialCodeIndex::VMIN] = 1;
        single.special_codes[SpecialCodeIndex::VTIME] = 0;
        tcsetattr(stdin(), OptionalActions::Now, &single)?;
        let (pressed, quit) = oneshot::channel();
        // Reading a terminal cannot be cancelled; the thread ends with the process.
        std::thread::spawn(move || {
            let mut keys = stdin().lock().bytes();
            // A terminal that is gone asks for an end too.
            while keys.next().is_some_and(|key| key.is_ok_and(|key| !matches!(key, b'q' | b'Q'))) {}
            let _ = pressed.send(());
        });
        Ok(Some(Self { before, quit }))
    }

    /// Resolves when `q` has been pressed, or when the terminal is gone.
    pub(crate) async fn quit(&mut self) {
        let _ = (&mut self.quit).await;
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        let _ = tcsetattr(stdin(), OptionalActions::Now, &self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_fits_its_terminal_and_keeps_its_last_line() {
        assert_eq!(
            frame("one\ntwo\nthree\nquit", 3, 4),
            "\u{1b}[Hone\u{1b}[K\r\ntwo\u{1b}[K\r\nquit\u{1b}[K\u{1b}[J"
        );
        assert_eq!(frame("größer", 24, 3), "\u{1b}[Hgrö\u{1b}[K\u{1b}[J");
    }
}
