//! From the name in a request to the configured model.

use std::collections::BTreeMap;

use super::{ModelName, ModelSpec};

/// How many near names an answer about an unknown model offers.
const NEAREST: usize = 3;

/// The configured models by name and alias.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    models: BTreeMap<ModelName, ModelSpec>,
    aliases: BTreeMap<String, ModelName>,
}

/// Nobody configured this name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unknown {
    /// The name that was asked for.
    pub asked: String,
    /// Configured names and aliases that look like it, the nearest first; all of them when there are few.
    pub nearest: Vec<String>,
}

impl Catalog {
    /// A catalog of `models`. An alias that is also a model's name means that model; of two models with the
    /// same alias the first by name has it. (The configuration refuses both.)
    pub fn new(models: BTreeMap<ModelName, ModelSpec>) -> Self {
        let mut aliases = BTreeMap::new();
        for (name, spec) in &models {
            for alias in &spec.aliases {
                if !models.contains_key(alias.as_str()) {
                    aliases.entry(alias.clone()).or_insert_with(|| name.clone());
                }
            }
        }
        Self { models, aliases }
    }

    /// The model that `asked` means, by name or alias.
    ///
    /// # Errors
    /// [`Unknown`] with the nearest names.
    pub fn resolve(&self, asked: &str) -> Result<(&ModelName, &ModelSpec), Unknown> {
        let name = self.aliases.get(asked).map_or(asked, ModelName::as_str);
        self.models
            .get_key_value(name)
            .ok_or_else(|| Unknown { asked: asked.to_owned(), nearest: nearest(asked, self.names()) })
    }

    /// The models in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = (&ModelName, &ModelSpec)> {
        self.models.iter()
    }

    /// Whether no model is configured.
    pub fn is_empty(&self) -> bool {
        self.models.is_empty()
    }

    fn names(&self) -> impl Iterator<Item = &str> {
        self.models.keys().map(ModelName::as_str).chain(self.aliases.keys().map(String::as_str))
    }
}

/// The candidates most like `asked`, the best first.
pub(crate) fn nearest<'a>(asked: &str, candidates: impl Iterator<Item = &'a str>) -> Vec<String> {
    let asked = asked.to_lowercase();
    let mut scored: Vec<(f64, &str)> = candidates
        .map(|candidate| (strsim::jaro_winkler(&asked, &candidate.to_lowercase()), candidate))
        .collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(b.1)));
    scored.into_iter().take(NEAREST).map(|(_, name)| name.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn catalog(models: &[(&str, &[&str])]) -> Catalog {
        let spec = |aliases: &[&str]| ModelSpec {
            aliases: aliases.iter().map(ToString::to_string).collect(),
            ..ModelSpec::new("m.gguf")
        };
        Catalog::new(models.iter().map(|(name, aliases)| (ModelName::new(*name), spec(aliases))).collect())
    }

    #[test]
    fn an_alias_means_its_model_and_a_name_means_itself() {
        let catalog = catalog(&[("gemma", &["big"]), ("smollm2", &["small", "gemma"])]);
        assert_eq!(catalog.resolve("small").unwrap().0.as_str(), "smollm2");
        assert_eq!(catalog.resolve("big").unwrap().0.as_str(), "gemma");
        assert_eq!(catalog.resolve("gemma").unwrap().0.as_str(), "gemma");
    }

    #[test]
    fn an_unknown_name_comes_with_the_nearest_first() {
        let catalog = catalog(&[("gemma", &[]), ("qwen", &[]), ("smollm2", &["small"]), ("llama", &[])]);
        let unknown = catalog.resolve("SmolLM").unwrap_err();
        assert_eq!(unknown.asked, "SmolLM");
        assert_eq!(unknown.nearest[..2], ["smollm2", "small"]);
        assert_eq!(unknown.nearest.len(), 3);
    }
}
