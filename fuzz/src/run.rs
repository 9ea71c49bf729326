//! What is done with a model, if it opens at all.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use kapitsa::{Engine, Error, OpenOptions};
use kapitsa_engine::{Event, Request};

use crate::parts;

/// A GGUF file. Returns whether a model came out of it.
pub fn gguf(data: &[u8]) -> bool {
    let path = folder().join("model.gguf");
    write(&path, data);
    run(&path)
}

/// `config.json` and `model.safetensors`.
pub fn safetensors(data: &[u8]) -> bool {
    let [config, weights] = parts::split(data);
    write(&folder().join("config.json"), config);
    write(&folder().join("model.safetensors"), weights);
    run(folder())
}

/// One folder for the life of the process. Files in it are replaced, never changed: they may be mapped.
pub(crate) fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| tempfile::Builder::new().prefix("kapitsa-fuzz-").tempdir().expect("a folder").keep())
}

pub(crate) fn write(path: &Path, data: &[u8]) {
    let _ = std::fs::remove_file(path);
    std::fs::write(path, data).expect("the temporary folder can be written");
}

fn run(path: &Path) -> bool {
    let options = OpenOptions { threads: Some(1), ..OpenOptions::default() };
    match kapitsa::open_engine(path, &options) {
        Ok(engine) => use_model(&engine),
        Err(error) => {
            check_message(&error);
            false
        }
    }
}

fn use_model(engine: &Engine) -> bool {
    let last = u32::try_from(engine.model().vocab - 1).expect("a vocabulary that ids can name");
    let mut tokens = vec![0, last, last / 2];
    tokens.truncate(engine.context());
    let vocab = engine.model().vocab;
    match engine.logits(&tokens, &[]) {
        Ok(outputs) => assert_eq!(outputs.logits.len(), tokens.len() * vocab),
        Err(error) => {
            check_message(&Error::from(error));
            return false;
        }
    }
    let request = Request {
        prompt: tokens,
        images: vec![],
        sampling: Default::default(),
        stop_tokens: vec![last],
        max_tokens: Some(2),
        logprobs: Some(1),
        constraint: None,
    };
    match engine.submit(request) {
        Ok(mut generation) => {
            while let Some(event) = generation.recv() {
                if let Event::Failed(error) = event {
                    assert!(engine.is_alive());
                    check_message(&Error::from(error));
                }
            }
        }
        Err(error) => check_message(&Error::from(error)),
    }
    true
}

/// A user sees one line of reasonable length.
pub(crate) fn check_message(error: &dyn std::error::Error) {
    let text = error.to_string();
    assert!(!text.is_empty() && !text.contains(char::is_control) && text.len() < 2000, "{text:?}");
}
