//! A home folder, and a hub that behaves as a test wants.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use kapitsa_hub::{Hub, HubError, HubOptions, Progress, Timing};
use kapitsa_testkit::FakeHub;
use tempfile::TempDir;

/// A GGUF file that takes many chunks, and its name.
pub(crate) const GGUF: &str = "tiny.gguf";

pub(crate) struct World {
    pub(crate) folder: TempDir,
    pub(crate) server: FakeHub,
    pub(crate) token: Option<String>,
    pub(crate) timing: Timing,
}

/// Bytes that repeat nowhere.
pub(crate) fn content(len: usize, seed: u32) -> Vec<u8> {
    (0..len as u32).map(|i| (i.wrapping_add(seed).wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

impl World {
    pub(crate) fn new(files: &[(&str, &[u8])]) -> World {
        let timing =
            Timing { connect: Duration::from_secs(3), stall: Duration::from_secs(60), retry: Duration::from_millis(5) };
        World { folder: tempfile::tempdir().unwrap(), server: FakeHub::start(files), token: None, timing }
    }

    /// With one GGUF file.
    pub(crate) fn with_gguf(len: usize) -> World {
        World::new(&[(GGUF, &content(len, 0))])
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.folder.path().join("Müller 家")
    }

    pub(crate) fn hub(&self) -> Hub {
        let options = HubOptions {
            home: self.home(),
            endpoint: Some(self.server.endpoint.clone()),
            token: self.token.clone(),
            families: vec!["llama"],
            memory_bytes: 1 << 34,
            timing: self.timing,
        };
        Hub::new(options).unwrap()
    }

    pub(crate) fn pull(&self, name: &str) -> Result<PathBuf, HubError> {
        self.pull_with(name, &AtomicBool::new(false), &mut |_| ())
    }

    pub(crate) fn pull_with(
        &self,
        name: &str,
        cancel: &AtomicBool,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<PathBuf, HubError> {
        let hub = self.hub();
        hub.pull(&hub.find(Some(name))?, cancel, progress)
    }

    /// The error's text, which is one line.
    pub(crate) fn error(&self, name: &str) -> String {
        let error = self.pull(name).expect_err("should fail").to_string();
        assert!(!error.contains('\n'), "{error}");
        error
    }

    /// The repository's folder.
    pub(crate) fn repository(&self) -> PathBuf {
        self.home().join("models/hf/owner/name")
    }

    /// Names in the repository's folder, in order, without the record.
    pub(crate) fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.repository()).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.retain(|name| name != ".kapitsa.json");
        names.sort();
        names
    }

    /// The bytes that have come of a file that is not whole.
    pub(crate) fn partial(&self) -> Option<Vec<u8>> {
        let name = self.names().into_iter().find(|name| name.ends_with(".partial"))?;
        Some(fs::read(self.repository().join(name)).unwrap())
    }

    pub(crate) fn assert_whole(&self, path: &Path, name: &str) {
        let file = self.server.state().files.iter().find(|file| file.name == name).unwrap().clone();
        assert!(fs::read(path).unwrap() == file.listed, "{name} is not as it should be");
    }
}
