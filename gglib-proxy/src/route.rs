//! Which of the engine's routes a request is for.

/// A route whose requests need an engine. The engine's path is ours too, and answers also without `/v1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// Chat completions.
    Chat,
    /// Text completions.
    Completions,
    /// Embeddings.
    Embeddings,
    /// Reranking.
    Rerank,
}

impl Route {
    pub(crate) const ALL: [Self; 4] = [Self::Chat, Self::Completions, Self::Embeddings, Self::Rerank];

    pub(crate) const fn path(self) -> &'static str {
        match self {
            Self::Chat => "/v1/chat/completions",
            Self::Completions => "/v1/completions",
            Self::Embeddings => "/v1/embeddings",
            Self::Rerank => "/v1/rerank",
        }
    }

    /// The path without `/v1`, which some clients leave out.
    pub(crate) fn short_path(self) -> &'static str {
        self.path().trim_start_matches("/v1")
    }

    /// The route at `path`, one of the two.
    pub(crate) fn at(path: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|route| path == route.path() || path == route.short_path())
    }

    /// The member without which there is nothing to answer.
    pub(crate) const fn required(self) -> &'static str {
        match self {
            Self::Chat => "messages",
            Self::Completions => "prompt",
            Self::Embeddings => "input",
            Self::Rerank => "documents",
        }
    }

    /// Whether the engine's answer can be asked for as a stream. Else it comes in one piece.
    pub(crate) const fn streams(self) -> bool {
        matches!(self, Self::Chat | Self::Completions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_is_found_at_both_of_its_paths() {
        for route in Route::ALL {
            assert_eq!(Route::at(route.path()), Some(route));
            assert_eq!(Route::at(route.short_path()), Some(route));
        }
        assert_eq!(Route::Rerank.short_path(), "/rerank");
        assert_eq!(Route::at("/v1/v1/rerank"), None);
    }
}
