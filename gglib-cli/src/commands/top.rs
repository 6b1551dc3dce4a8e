//! `gglib top`: the status of the running endpoint, again every second.

use std::convert::Infallible;
use std::future::pending;
use std::io::{self, IsTerminal};
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};

use crate::args::{Common, Top};
use crate::error::CliError;
use crate::exit::Exit;
use crate::screen::{Keys, Screen};
use crate::shutdown::Stop;
use crate::{client, settings, ui, view};

const PERIOD: Duration = Duration::from_secs(1);

pub(super) async fn run(args: &Top, common: &Common) -> Result<Exit, CliError> {
    let config = settings::load(common, &[])?;
    let url = client::url(&args.target, &config);
    // An endpoint that is not there is an error; one that goes away later may come back.
    let frame = frame(&url).await?;
    if !io::stdout().is_terminal() {
        ui::part(&frame);
        return Ok(Exit::Success);
    }
    let mut stop = Stop::listen().map_err(CliError::Terminal)?;
    let screen = Screen::open();
    let mut keys = Keys::listen().map_err(CliError::Terminal)?;
    let quit = async {
        match &mut keys {
            Some(keys) => keys.quit().await,
            None => pending().await,
        }
    };
    tokio::select! {
        never = show(&url, &screen) => match never {},
        () = stop.requested() => {}
        () = quit => {}
    }
    Ok(Exit::Success)
}

/// Shows frame after frame, or why there is none.
async fn show(url: &str, screen: &Screen) -> Infallible {
    let mut seconds = interval(PERIOD);
    seconds.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        seconds.tick().await;
        let frame = frame(url).await.unwrap_or_else(|error| format!("{error}\n"));
        screen.draw(&format!("{frame}\nq or Ctrl-C quits."));
    }
}

async fn frame(url: &str) -> Result<String, CliError> {
    let status = client::get_json(url, "/status").await?;
    Ok(view::render(url, &status, view::now()))
}
