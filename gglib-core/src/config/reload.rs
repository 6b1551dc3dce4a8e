//! What of a changed configuration has to wait.

use super::Config;

impl Config {
    /// The keys in which `newer` differs and that a running endpoint does not take over: they take effect after a
    /// restart. Everything else can be applied as it runs.
    ///
    /// ```
    /// use gglib_core::config::{self, Sources};
    ///
    /// let load = |text| config::load(&Sources { file: Some(("gglib.toml".as_ref(), text)), env: &|_| None, flags: &[] });
    /// let running = load("")?;
    /// let newer = load("[server]\nlisten = \"127.0.0.1:1234\"\n[admission]\nqueue = 8")?;
    /// assert_eq!(running.after_restart(&newer), ["server.listen"]);
    /// # Ok::<(), config::ConfigErrors>(())
    /// ```
    pub fn after_restart(&self, newer: &Self) -> Vec<&'static str> {
        let (old, new) = (&self.engine, &newer.engine);
        let keys = [
            ("server.listen", self.server.listen != newer.server.listen),
            ("engine.binary", old.binary != new.binary),
            ("engine.transport", old.transport != new.transport),
            ("engine.load_stall", old.load_stall != new.load_stall),
            ("engine.load_limit", old.load_limit != new.load_limit),
            ("engine.stop_grace", old.stop_grace != new.stop_grace),
            ("memory.growth", self.memory.growth != newer.memory.growth),
            ("slots.enabled", self.slots.enabled != newer.slots.enabled),
            ("slots.disk_budget", self.slots.disk_budget != newer.slots.disk_budget),
            ("timeouts.connect", self.timeouts.connect != newer.timeouts.connect),
        ];
        keys.into_iter().filter_map(|(key, differs)| differs.then_some(key)).collect()
    }
}

#[cfg(test)]
mod tests {
    use crate::config::{KEYS, Sources, load};

    fn config(text: &str) -> crate::config::Config {
        load(&Sources { file: Some(("gglib.toml".as_ref(), text)), env: &|_| None, flags: &[] }).unwrap()
    }

    #[test]
    fn every_key_that_has_to_wait_is_a_key_and_is_told() {
        let running = config("");
        let newer = config(
            "[server]\nlisten = \"127.0.0.1:1\"\n[engine]\nbinary = \"/x\"\ntransport = \"tcp\"\nload_stall = \"1s\"\n\
             load_limit = \"2s\"\nstop_grace = \"3s\"\ndrain = \"4s\"\n[timeouts]\nconnect = \"5s\"\nidle = \"6s\"\n\
             [memory]\ngrowth = \"1GiB\"\n[slots]\nenabled = false\ndisk_budget = \"1GiB\"",
        );
        let waiting = running.after_restart(&newer);
        assert_eq!(waiting.len(), 10, "{waiting:?}");
        for key in waiting {
            assert!(KEYS.iter().any(|known| known.path == key), "{key}");
        }
        assert!(newer.after_restart(&newer).is_empty());
    }
}
