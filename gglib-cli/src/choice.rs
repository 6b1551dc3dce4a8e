//! Which model is meant where none is named: the first by name whose engine is there to talk.

use gglib_core::config::Config;
use gglib_core::model::{ModelName, ModelSpec};

/// What makes a `llama-server` embed or rerank instead (its `--help`); such an engine answers no chat.
const OTHER_USES: [&str; 4] = ["--embedding", "--embeddings", "--rerank", "--reranking"];

/// The first model by name that talks.
pub(crate) fn first(config: &Config) -> Option<(&ModelName, &ModelSpec)> {
    config.models.iter().find(|(_, spec)| talks(spec))
}

/// Whether the engine of this model is there to talk.
pub(crate) fn talks(spec: &ModelSpec) -> bool {
    !spec.args.iter().any(|argument| OTHER_USES.contains(&&**argument))
}

/// The same of a model by its own name. Of one that is not configured here nothing is known against it.
pub(crate) fn may_talk(config: &Config, name: &str) -> bool {
    config.models.get(name).is_none_or(talks)
}

#[cfg(test)]
mod tests {
    use gglib_core::config::{Sources, load};

    use super::*;

    #[test]
    fn the_first_by_name_is_meant_unless_its_engine_embeds_or_reranks() {
        let text = "[models.z]\npath = \"z\"\n[models.m]\npath = \"m\"\nargs = [\"-ngl\", \"0\"]\n\
                    [models.a]\npath = \"a\"\nargs = [\"--embeddings\"]\n\
                    [models.b]\npath = \"b\"\nargs = [\"--reranking\"]\n";
        let read = |text| load(&Sources { file: Some(("f".as_ref(), text)), env: &|_| None, flags: &[] });
        let config = read(text).unwrap();
        assert_eq!(first(&config).map(|(name, _)| name.as_str()), Some("m"));
        assert_eq!(["a", "b", "m", "other"].map(|name| may_talk(&config, name)), [false, false, true, true]);
        let config = read("[models.a]\npath = \"a\"\nargs = [\"--embedding\"]\n").unwrap();
        assert_eq!(first(&config), None);
    }
}
