//! Which request gets which answer.

use std::io;

use gglib_testkit::{Entry, Template};
use serde_json::json;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::{
    chat::{self, Ask, Kind},
    connection::Connection,
    engine::Engine,
    http::{Request, Response},
    recording, slots, stream,
};

/// Answers the requests of one connection until it ends.
pub(crate) async fn serve<S>(engine: &Engine, mut connection: Connection<S>) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let idle = engine.launch.idle_close;
    while let Some(request) = connection.request(idle).await? {
        if connection.is_reused() && engine.drops_reused() {
            break;
        }
        let number = (request.method == "POST").then(|| engine.requested(&request));
        match answer(engine, &request, number) {
            Answer::Whole(response) => {
                connection.respond(&response, idle).await?;
                if let Some(request) = number {
                    engine.note(|launch| Entry::Finished { launch, request });
                }
            }
            Answer::Slot => {
                let _in_flight = engine.begin();
                let response = slots::answer(engine, &request).await;
                connection.respond(&response, idle).await?;
            }
            Answer::Chat(ask, number) => {
                let _in_flight = engine.begin();
                let counts = engine.saved_slots.as_ref().map(|slots| slots.read(&request.body));
                let steps = chat::plan(&engine.next_reply(), &ask, &engine.args.model, counts);
                stream::perform(engine, &mut connection, number, &ask, steps).await?;
            }
        }
    }
    Ok(())
}

enum Answer {
    Whole(Response),
    /// A slot is to be saved or restored.
    Slot,
    /// A chat request in order, with its number.
    Chat(Ask, usize),
}

fn answer(engine: &Engine, request: &Request, number: Option<usize>) -> Answer {
    if !engine.is_loaded() {
        return Answer::Whole(Response::error(recording::LOADING));
    }
    if engine.args.key.is_some() && engine.args.key != request.key && !is_public(&request.path) {
        return Answer::Whole(Response::error(recording::WRONG_KEY));
    }
    let (path, model) = (request.path.as_str(), &engine.args.model);
    if let Some(status) = engine.launch.fails_with.filter(|_| request.method == "POST") {
        return Answer::Whole(Response::failure(status));
    }
    let kind = match path {
        "/v1/completions" | "/completions" => Kind::Text,
        "/v1/embeddings" if engine.args.embeddings => Kind::Embeddings,
        "/v1/rerank" if engine.args.embeddings => Kind::Rerank,
        _ => Kind::Chat,
    };
    Answer::Whole(match (request.method.as_str(), path, number) {
        ("GET", "/health" | "/v1/health", _) => health(engine.health()),
        ("GET", "/props", _) => {
            let tools = engine.launch.template == Template::WithTools;
            Response::ok(recording::props(model, engine.args.parallel, engine.args.context, tools))
        }
        ("GET", "/v1/models" | "/models", _) => Response::ok(recording::models(model, engine.args.context)),
        ("POST", path, _) if path.starts_with("/slots/") => return Answer::Slot,
        // Its own kind of completion: the smallest piece of work.
        ("POST", "/completion", _) => Response::ok(r#"{"content":"2","stop":true}"#),
        ("POST", "/v1/embeddings" | "/v1/rerank", _) if kind == Kind::Chat => {
            Response::error(recording::NOT_SUPPORTED)
        }
        (
            "POST",
            "/v1/chat/completions"
            | "/chat/completions"
            | "/v1/completions"
            | "/completions"
            | "/v1/embeddings"
            | "/v1/rerank",
            Some(number),
        ) => match Ask::read(kind, &request.body, engine.args.context) {
            Ok(ask) => return Answer::Chat(ask, number),
            Err(response) => response,
        },
        _ => Response::error(recording::NOT_FOUND),
    })
}

/// Whether the route is open without the key.
fn is_public(path: &str) -> bool {
    ["/health", "/v1/health", "/models", "/v1/models"].contains(&path)
}

fn health(status: u16) -> Response {
    match status {
        200 => Response::ok(r#"{"status":"ok"}"#),
        503 => Response::error(recording::LOADING),
        code => {
            let error = json!({ "error": { "code": code, "message": "unwell", "type": "server_error" } });
            Response { status: code, body: error.to_string() }
        }
    }
}
