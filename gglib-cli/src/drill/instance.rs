//! An endpoint of the drill's own: its own address, its own data directory, engines that the drill may kill.

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use gglib_core::config::{Config, Transport};
use gglib_core::model::{ModelName, ModelSpec};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::scenario::Setup;
use super::stage::poll;
use super::trouble::Trouble;
use crate::choice;
use crate::endpoint::Endpoint;
use crate::error::CliError;

/// Longest wait for an engine's wrapper to say which port is meant for it.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long requests may go on when the drill is over: none should.
const DRAIN: Duration = Duration::from_secs(2);

/// The endpoint, and what is in the way of its engines.
pub(crate) struct Instance {
    endpoint: Endpoint,
    home: TempDir,
}

/// What is in the way of the engines, by the directory in which that is arranged.
pub(crate) struct Obstacle(Option<PathBuf>);

impl Instance {
    /// Starts an endpoint that is like the one of `config`, for the models of `cast`, with engines run from `binary`.
    pub(crate) async fn start(
        setup: Setup,
        config: &Config,
        cast: &Cast,
        binary: &Path,
    ) -> Result<Self, CliError> {
        let home = tempfile::Builder::new().prefix("gglib-drill-").tempdir().map_err(CliError::Drill)?;
        let mut config = config.clone();
        config.server.listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        config.engine.drain = DRAIN;
        config.memory.max_resident = 1;
        config.models = cast.models();
        let program = match setup {
            Setup::Usual => binary.to_owned(),
            Setup::TakenPort => {
                config.engine.transport = Transport::Tcp;
                wrap(home.path(), &waiting(home.path(), binary)).map_err(CliError::Drill)?
            }
            Setup::FullDisk => {
                config.slots.enabled = true;
                wrap(home.path(), &limited(binary)).map_err(CliError::Drill)?
            }
        };
        let endpoint = Endpoint::start_in(&home.path().join("data"), &config, program).await?;
        Ok(Self { endpoint, home })
    }

    pub(crate) fn url(&self) -> String {
        self.endpoint.base_url()
    }

    pub(crate) fn obstacle(&self) -> Obstacle {
        Obstacle(Some(self.home.path().to_owned()))
    }

    pub(crate) async fn shut_down(self) {
        self.endpoint.shut_down().await;
    }
}

/// The models of a drill.
pub(crate) struct Cast {
    pub(crate) model: ModelName,
    pub(crate) spec: ModelSpec,
    /// The second one: the next by name that talks, else the same file under another name.
    pub(crate) other: (ModelName, ModelSpec),
}

impl Cast {
    /// The model `named`, by name or alias, or else the first by name that talks.
    pub(crate) fn of(config: &Config, named: Option<&str>) -> Result<Self, CliError> {
        let catalog = config.catalog();
        let chosen = match named {
            Some(name) => catalog.resolve(name).map_err(|unknown| {
                CliError::Model(format!("no model `{}` is configured; see `gglib model list`", unknown.asked))
            })?,
            None => choice::first(config).ok_or_else(|| {
                let what = "a drill needs a model, and none is configured";
                CliError::Model(format!("{what}; `gglib up` gets one, `gglib model add NAME FILE` adds one"))
            })?,
        };
        let (model, spec) = (chosen.0.clone(), actor(chosen.1));
        let is_other = |(name, spec): &(&ModelName, &ModelSpec)| **name != model && choice::talks(spec);
        let other = config.models.iter().find(is_other).map_or_else(
            || (ModelName::new(format!("{model}-again")), spec.clone()),
            |(name, spec)| (name.clone(), actor(spec)),
        );
        Ok(Self { model, spec, other })
    }

    fn models(&self) -> std::collections::BTreeMap<ModelName, ModelSpec> {
        [(self.model.clone(), self.spec.clone()), self.other.clone()].into()
    }
}

/// Only what its engine is started with: nothing is loaded or kept by itself during a drill.
fn actor(spec: &ModelSpec) -> ModelSpec {
    let ModelSpec { context, parallel, args, .. } = spec.clone();
    ModelSpec { context, parallel, args, ..ModelSpec::new(&spec.path) }
}

impl Obstacle {
    /// Nothing is in the way.
    pub(crate) fn none() -> Self {
        Self(None)
    }

    /// Whether there is what `setup` needs.
    pub(crate) fn suits(&self, setup: Setup) -> Result<(), Trouble> {
        if setup == Setup::Usual || self.0.is_some() { Ok(()) } else { Err(Trouble::NotLive) }
    }

    /// Takes the port that is meant for the engine that is about to start, and then lets it start.
    pub(crate) async fn take_port(&self) -> Result<Thief, Trouble> {
        let home = self.0.as_ref().ok_or(Trouble::NotLive)?;
        let port =
            poll("the engine to be started", PATIENCE, async || port_in(&home.join("arguments"))).await?;
        let thief = Thief::at(port).await.map_err(Trouble::Port)?;
        fs::write(home.join("go"), "").map_err(Trouble::Port)?;
        Ok(thief)
    }
}

/// Another program at an engine's port, which says to everybody that it is well. Dropped, it goes away.
pub(crate) struct Thief(JoinHandle<()>);

impl Thief {
    async fn at(port: u16) -> io::Result<Self> {
        const WELL: &str = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 15\r\n\
                            connection: close\r\n\r\n{\"status\":\"ok\"}";
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await?;
        Ok(Self(tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                // What is asked does not matter, nor whether the answer arrives.
                let _ = stream.read(&mut [0; 4096]).await;
                let _ = stream.write_all(WELL.as_bytes()).await;
            }
        })))
    }
}

impl Drop for Thief {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn port_in(arguments: &Path) -> Option<u16> {
    let text = fs::read_to_string(arguments).ok()?;
    let mut lines = text.lines().skip_while(|line| *line != "--port");
    lines.nth(1)?.parse().ok()
}

/// A program of which the first start as an engine writes down its arguments and waits until it may go on.
fn waiting(home: &Path, binary: &Path) -> String {
    let (home, binary) = (quoted(home), quoted(binary));
    format!(
        "#!/bin/sh\n\
         case \" $* \" in *' --port '*)\n\
         \x20 if mkdir {home}/first 2>/dev/null; then\n\
         \x20   printf '%s\\n' \"$@\" > {home}/arguments.new && mv {home}/arguments.new {home}/arguments\n\
         \x20   until [ -e {home}/go ]; do sleep 0.1; done\n\
         \x20 fi ;;\n\
         esac\n\
         exec {binary} \"$@\"\n"
    )
}

/// A program that can write no file beyond a kilobyte, and is not killed for trying: its writes fail, as on a disk that
/// is full.
fn limited(binary: &Path) -> String {
    format!("#!/bin/sh\ntrap '' XFSZ\nulimit -f 1\nexec {} \"$@\"\n", quoted(binary))
}

fn wrap(home: &Path, script: &str) -> io::Result<PathBuf> {
    let path = home.join("llama-server");
    fs::write(&path, script)?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o700))?;
    Ok(path)
}

/// A path as one word of a shell.
fn quoted(path: &Path) -> String {
    format!("'{}'", path.to_string_lossy().replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use gglib_core::config::{Sources, load};

    use super::*;

    fn config(text: &str) -> Config {
        load(&Sources { file: Some(("/c/gglib.toml".as_ref(), text)), env: &|_| None, flags: &[] }).unwrap()
    }

    #[test]
    fn a_drill_needs_a_model_and_finds_a_second_one() {
        let error = Cast::of(&config(""), None).err().unwrap().to_string();
        assert!(error.contains("`gglib up`") && error.contains("`gglib model add NAME FILE`"), "{error}");
        let one = config("[models.a]\npath = \"a.gguf\"\naliases = [\"x\"]\ncontext = 512\npin = true");
        let cast = Cast::of(&one, Some("x")).unwrap();
        let spec = ModelSpec { context: Some(512), ..ModelSpec::new("/c/a.gguf") };
        assert_eq!((cast.model.as_str(), &cast.spec), ("a", &spec));
        assert_eq!(cast.other, (ModelName::new("a-again"), spec));
        let two = config("[models.a]\npath = \"a.gguf\"\n[models.b]\npath = \"b.gguf\"");
        let cast = Cast::of(&two, Some("b")).unwrap();
        assert_eq!((cast.model.as_str(), cast.other.0.as_str()), ("b", "a"));
        let error = Cast::of(&two, Some("c")).err().unwrap().to_string();
        assert_eq!(error, "no model `c` is configured; see `gglib model list`");
    }

    #[test]
    fn files_of_a_limited_program_stay_short_and_it_lives() {
        let home = tempfile::tempdir().unwrap();
        let odd = home.path().join("it's odd");
        fs::create_dir(&odd).unwrap();
        let script = "#!/bin/sh\nhead -c 4096 /dev/zero > \"$1\"\necho alive\n";
        fs::rename(wrap(&odd, script).unwrap(), odd.join("writer")).unwrap();
        let program = wrap(&odd, &limited(&odd.join("writer"))).unwrap();
        let file = home.path().join("file");
        let output = Command::new(program).arg(&file).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "alive\n", "{output:?}");
        assert!(fs::metadata(file).unwrap().len() <= 1024);
    }

    #[test]
    fn the_port_is_the_argument_after_its_flag() {
        let home = tempfile::tempdir().unwrap();
        let arguments = home.path().join("arguments");
        assert_eq!(port_in(&arguments), None);
        fs::write(&arguments, "--host\n127.0.0.1\n--port\n4711\n--parallel\n1\n").unwrap();
        assert_eq!(port_in(&arguments), Some(4711));
    }

    #[tokio::test]
    async fn the_first_start_waits_until_its_port_is_taken_and_later_ones_do_not() {
        let home = tempfile::tempdir().unwrap();
        let program = wrap(home.path(), &waiting(home.path(), Path::new("/bin/echo"))).unwrap();
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let run = || {
            let mut command = tokio::process::Command::new(&program);
            command.args(["--port", &port.to_string()]).output()
        };
        let obstacle = Obstacle(Some(home.path().to_owned()));
        let (first, thief) = tokio::join!(run(), obstacle.take_port());
        assert_eq!(first.unwrap().stdout, format!("--port {port}\n").into_bytes());
        assert!(std::net::TcpListener::bind(("127.0.0.1", port)).is_err());
        drop(thief.unwrap());
        assert!(run().await.unwrap().status.success());
    }
}
