//! The base URL of an OpenAI-compatible API.

use std::fmt;

use gglib_core::ports::{Phase, UpstreamError};
use reqwest::Url;

use super::HttpError;

/// A base URL without its `/v1`: people write it with and without, and our paths have it.
#[derive(Clone)]
pub(super) struct BaseUrl {
    url: Url,
}

impl BaseUrl {
    pub(super) fn parse(text: &str) -> Result<Self, HttpError> {
        let mut url = Url::parse(text.trim())
            .map_err(|source| HttpError::NotAUrl { url: text.to_owned(), source: source.into() })?;
        if let Some(problem) = problem_of(&url) {
            let _ = url.set_password(None);
            return Err(HttpError::NotABase { url: url.into(), problem });
        }
        let path = url.path().trim_end_matches('/');
        let prefix = path.strip_suffix("/v1").unwrap_or(path).to_owned();
        url.set_path(&prefix);
        Ok(Self { url })
    }

    /// The URL of `path`, which begins with a slash and may have a query.
    pub(super) fn join(&self, path: &str) -> Result<Url, UpstreamError> {
        let prefix = self.url.as_str().trim_end_matches('/');
        Url::parse(&format!("{prefix}{path}")).map_err(|error| UpstreamError::new(Phase::Connect, error))
    }

    /// Without a user: none is allowed.
    pub(super) fn authority(&self) -> &str {
        self.url.authority()
    }

    pub(super) fn is_https(&self) -> bool {
        self.url.scheme() == "https"
    }

    /// Whether the host is this machine, by its name or address.
    pub(super) fn is_loopback(&self) -> bool {
        let host = self.url.host_str().unwrap_or_default();
        let address = host.trim_start_matches('[').trim_end_matches(']').parse::<std::net::IpAddr>();
        address.map_or_else(
            |_| host == "localhost" || host.ends_with(".localhost"),
            |address| address.is_loopback(),
        )
    }
}

impl fmt::Debug for BaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.url.as_str())
    }
}

fn problem_of(url: &Url) -> Option<&'static str> {
    if !matches!(url.scheme(), "http" | "https") {
        Some("its scheme is neither http nor https")
    } else if !url.username().is_empty() || url.password().is_some() {
        Some("it holds a user name or password")
    } else if url.query().is_some() || url.fragment().is_some() {
        Some("it has a query or fragment")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_of_a_base_leads_to_the_same_endpoint() {
        for (base, expected) in [
            ("http://127.0.0.1:8080", "http://127.0.0.1:8080/v1/chat/completions?a=1"),
            ("http://127.0.0.1:8080/", "http://127.0.0.1:8080/v1/chat/completions?a=1"),
            ("http://127.0.0.1:8080/v1", "http://127.0.0.1:8080/v1/chat/completions?a=1"),
            (" http://127.0.0.1:8080/v1// ", "http://127.0.0.1:8080/v1/chat/completions?a=1"),
            ("http://[::1]:8080/v1", "http://[::1]:8080/v1/chat/completions?a=1"),
            ("https://openrouter.ai/api/v1", "https://openrouter.ai/api/v1/chat/completions?a=1"),
            ("https://example.org/dev1", "https://example.org/dev1/v1/chat/completions?a=1"),
        ] {
            let url = BaseUrl::parse(base).unwrap().join("/v1/chat/completions?a=1").unwrap();
            assert_eq!(url.as_str(), expected, "{base}");
        }
    }

    #[test]
    fn loopback_is_known_by_name_and_address() {
        for (base, expected) in [
            ("http://127.0.0.1:8080", true),
            ("http://127.8.8.8", true),
            ("http://[::1]:8080", true),
            ("http://LOCALHOST:8080", true),
            ("http://gglib.localhost", true),
            ("http://192.168.0.2:8080", false),
            ("http://[2001:db8::1]", false),
            ("https://localhost.example.org", false),
        ] {
            assert_eq!(BaseUrl::parse(base).unwrap().is_loopback(), expected, "{base}");
        }
    }

    #[test]
    fn what_is_no_base_is_named_with_its_problem() {
        for (base, expected) in [
            ("", "`` is not a URL; give one like http://127.0.0.1:8080/v1"),
            ("127.0.0.1:8080/v1", "`127.0.0.1:8080/v1` is not a URL; give one like http://127.0.0.1:8080/v1"),
            (
                "localhost:8080",
                "`localhost:8080` cannot be a base URL: its scheme is neither http nor https; \
                 give one like http://127.0.0.1:8080/v1",
            ),
            (
                "http://me:secret@host/v1",
                "`http://me@host/v1` cannot be a base URL: it holds a user name or password; \
                 give one like http://127.0.0.1:8080/v1",
            ),
            (
                "http://host/v1?key=1",
                "`http://host/v1?key=1` cannot be a base URL: it has a query or fragment; \
                 give one like http://127.0.0.1:8080/v1",
            ),
        ] {
            assert_eq!(BaseUrl::parse(base).unwrap_err().to_string(), expected);
        }
    }
}
