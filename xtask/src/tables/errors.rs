//! The page on errors: the body, the headers, every code.

use anyhow::Result;
use gglib_core::api::error::{ApiError, ErrorCode, Row, table};
use gglib_core::retry::{RetryPolicy, Verdict, classify, hint, preset};
use gglib_runtime::completion::Failure;

use super::markdown::{self, Page, code};

const INTRO: &str = "\
Every error is OpenAI's error body. `code` is a string from the table below, or the engine's own string code if it
gave one; `param` names the member of the request at fault, or is `null`; `metadata` is there when more is known.";

const AFTER_EXAMPLE: &str = "\
Before a stream has begun the error is the response: its status, this body, and these headers. Once a stream has
begun the status is spent: the same body is sent as one event, `data: {\"error\":…}`, and the connection is then
cut. There is no `data: [DONE]` after an error, and no `finish_reason`.

| header | meaning |
|---|---|
| `retry-after` | When another attempt is worth making: whole seconds, rounded up, 1 to 60. |
| `retry-after-ms` | The same in milliseconds, 1 to 60000. The body's `metadata.retry_after_ms` is the unrounded value, and all that a stream can carry. |
| `x-should-retry` | `false`: gglib has tried what there is to try, and the same request would fail again. OpenAI's clients obey it. |
| `x-request-id` | On every response, errors or not: the client's own id if it sent a usable one (up to 128 printable characters), else a new one. It is in the log too. |";

const BEFORE_TABLE: &str = "\
An engine's own errors keep their status and message. A string code of the engine is kept as well; an integer one is
replaced by a code of the table, and what was replaced stands in `metadata` as `upstream_code` and `upstream_type`. A
request whose body stops coming is answered with 408 instead of 400, and `invalid_request`.

The last column says whether gglib's own client (`gglib chat`, `gglib q`) may repeat a request that ended with this
code before any content came.";

/// Renders every code.
pub fn render() -> Result<String> {
    let mut page = Page::new("Errors", "gglib-core/src/api/error");
    page.add(INTRO);
    page.add(example()?);
    page.add(AFTER_EXAMPLE);
    page.add("## Codes");
    page.add(BEFORE_TABLE);
    let rows = table().map(|Row { code: error, status, kind, meaning }| {
        let again = if is_repeated(error) { "yes" } else { "no" };
        [status.as_str().to_owned(), code(error.as_str()), code(kind), meaning.to_owned(), again.to_owned()]
    });
    page.add(markdown::table(["status", "`code`", "`type`", "meaning", "repeated"], rows));
    Ok(page.finish())
}

/// A refusal as it goes over the wire.
fn example() -> Result<String> {
    let error = ApiError::new(
        ErrorCode::QueueFull,
        "`smollm2`: as many requests as may (admission.queue = 256) are waiting for this model already",
    )
    .with_retry_after(hint::advertise(&RetryPolicy::default(), None));
    let mut lines = vec![format!("HTTP/1.1 {}", error.status), "content-type: application/json".to_owned()];
    for (name, value) in &error.headers() {
        lines.push(format!("{name}: {}", value.to_str()?));
    }
    let body: serde_json::Value = serde_json::from_slice(&error.to_json())?;
    Ok(format!("```http\n{}\n\n{}\n```", lines.join("\n"), serde_json::to_string_pretty(&body)?))
}

fn is_repeated(code: ErrorCode) -> bool {
    let failure = Failure::Event(ApiError::new(code, ""));
    !matches!(classify(&failure.facts(), preset::gglib().statuses), Verdict::Permanent(_))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_its_row_and_the_example_its_headers() {
        let page = render().unwrap();
        for code in ErrorCode::ALL {
            assert!(page.contains(&format!("| `{code}` |")), "{code}");
        }
        assert!(page.contains("HTTP/1.1 429 Too Many Requests\n"));
        assert!(page.contains("retry-after: 15\nretry-after-ms: 15000\n"));
        assert!(page.contains(
            "| `draining` | `server_error` | gglib is shutting down and takes no new requests. | yes |"
        ));
        assert!(page.contains(
            "| `upstream_died` | `server_error` | The upstream broke off before its answer was whole. | no |"
        ));
    }
}
