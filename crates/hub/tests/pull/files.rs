//! What comes, where it lies, and how it goes.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};

use kapitsa_hub::{HubError, Phase, Progress};
use kapitsa_testkit::fake_hub::{COMMIT, FakeFile};

use crate::world::{GGUF, World, content};

const NAME: &str = "hf:owner/name";

fn folder_files() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("config.json", br#"{"model_type":"llama"}"#.to_vec()),
        ("model-00001-of-00002.safetensors", content(600_000, 1)),
        ("model-00002-of-00002.safetensors", content(500_001, 2)),
        ("tokenizer.json", content(3000, 3)),
        ("empty.txt", Vec::new()),
        ("README.md", b"no".to_vec()),
        ("onnx/model.bin", b"no".to_vec()),
    ]
}

fn folder_world() -> World {
    let files = folder_files();
    World::new(&files.iter().map(|(name, bytes)| (*name, &bytes[..])).collect::<Vec<_>>())
}

#[test]
fn a_file_comes_once_and_is_kept() {
    let world = World::with_gguf(3_000_000);
    let mut steps: Vec<Progress> = Vec::new();
    let path =
        world.pull_with(&format!("{NAME}:{GGUF}"), &AtomicBool::new(false), &mut |step| steps.push(step)).unwrap();
    assert_eq!(path, world.repository().join(GGUF));
    world.assert_whole(&path, GGUF);
    assert!(steps.iter().all(|step| step.done_bytes <= step.total_bytes && step.total_bytes > 0));
    assert!(steps.is_sorted_by_key(|step| (step.phase, step.done_bytes)), "{steps:?}");
    assert!(steps.iter().any(|step| step.phase == Phase::Downloading && step.done_bytes == 3_000_000));

    let seen = world.server.state().seen.len();
    let mut silent = |progress| panic!("{progress:?}");
    assert_eq!(world.pull_with(NAME, &AtomicBool::new(false), &mut silent).unwrap(), path, "the only GGUF file");
    assert_eq!(world.server.state().seen.len(), seen, "nobody is asked for what is here");
}

#[test]
fn a_folder_comes_with_what_belongs_to_the_model() {
    let world = folder_world();
    let path = world.pull(NAME).unwrap();
    assert_eq!(path, world.repository());
    let wanted: Vec<_> =
        folder_files().into_iter().filter(|(name, _)| !["README.md", "onnx/model.bin"].contains(name)).collect();
    let mut names: Vec<_> = wanted.iter().map(|(name, _)| name.to_string()).collect();
    names.sort();
    assert_eq!(world.names(), names);
    for (name, bytes) in wanted {
        assert!(fs::read(path.join(name)).unwrap() == bytes, "{name}");
        assert!(world.server.requests_of(name).len() <= 1);
    }
    let record = fs::read_to_string(path.join(".kapitsa.json")).unwrap();
    assert!(record.contains(COMMIT) && record.contains("sha256") && record.contains("git_blob"), "{record}");
    let local = &world.hub().list()[0];
    assert_eq!((local.name.as_str(), local.complete, local.revision.as_deref()), (NAME, true, Some(COMMIT)));
    assert_eq!((local.size_bytes, local.here_bytes), (1_103_023, 1_103_023));
}

#[test]
fn a_family_that_is_not_built_is_refused_before_anything_comes() {
    let world = folder_world();
    world.server.state().family = Some("flint".into());
    let expected = "`owner/name` is of the family `flint`, which is not built yet; built are llama";
    assert_eq!(world.error(NAME), expected);
    assert_eq!(world.server.state().seen.len(), 1);
    assert!(!world.home().join("models/hf").exists(), "not even a folder");

    // A mirror may not say it: then the config does, before the weights come.
    world.server.state().family = None;
    let config = br#"{"model_type":"flint"}"#.to_vec();
    world.server.state().files[0] = FakeFile { name: "config.json".into(), bytes: config.clone(), listed: config };
    assert_eq!(world.error(NAME), expected);
    assert_eq!(world.names(), ["config.json"]);
}

#[test]
fn a_changed_or_lost_file_comes_again_alone() {
    let world = folder_world();
    let path = world.pull(NAME).unwrap();
    fs::write(path.join("tokenizer.json"), "short").unwrap();
    fs::remove_file(path.join("model-00002-of-00002.safetensors")).unwrap();
    let mut damaged = fs::read(path.join("model-00001-of-00002.safetensors")).unwrap();
    damaged[7] ^= 1;
    std::thread::sleep(std::time::Duration::from_millis(20)); // the time of change must differ
    fs::write(path.join("model-00001-of-00002.safetensors"), damaged).unwrap();
    assert!(!world.hub().list()[0].complete);
    world.pull(NAME).unwrap();
    for (name, bytes) in folder_files().into_iter().take(4) {
        assert!(fs::read(path.join(name)).unwrap() == bytes, "{name}");
    }
    assert_eq!(world.server.requests_of("config.json").len(), 1);
    assert_eq!(world.server.requests_of("tokenizer.json").len(), 2);
}

#[test]
fn several_models_in_a_repository_have_to_be_named() {
    let world = World::new(&[("a.gguf", b"aaa"), ("b-00001-of-00002.gguf", b"b1"), ("b-00002-of-00002.gguf", b"b2")]);
    let error = world.error(NAME);
    assert!(error.contains("has several GGUF files; pass one as hf:owner/name:FILE, of a.gguf, b-00001"), "{error}");
    world.pull("hf:owner/name:a.gguf").unwrap();
    let path = world.pull("hf:owner/name:b-00002-of-00002.gguf").unwrap();
    assert_eq!(path, world.repository().join("b-00001-of-00002.gguf"));
    assert_eq!(world.names(), ["a.gguf", "b-00001-of-00002.gguf", "b-00002-of-00002.gguf"]);
    let names: Vec<_> = world.hub().list().into_iter().map(|local| local.name).collect();
    assert_eq!(names, ["hf:owner/name:a.gguf", "hf:owner/name:b-00001-of-00002.gguf"]);
    let error = world.error("hf:owner/name:c.gguf");
    assert!(error.starts_with("owner/name:c.gguf was not found at http://127.0.0.1:"), "{error}");

    let removed = world.hub().remove("hf:owner/name:b-00001-of-00002.gguf").unwrap();
    assert_eq!((removed[0].freed_bytes, world.names()), (4, vec!["a.gguf".to_owned()]));
    world.hub().remove("hf:owner/name:a.gguf").unwrap();
    assert!(!world.home().join("models/hf").exists(), "nothing is left of the last one");
}

#[test]
fn pulls_at_the_same_time_download_once() {
    let world = World::with_gguf(2_000_000);
    world.server.state().bytes_per_second = Some(8_000_000);
    let waited = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let pulls: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    world.pull_with(NAME, &AtomicBool::new(false), &mut |step| {
                        waited.fetch_or(step.phase == Phase::Waiting, Ordering::Relaxed);
                    })
                })
            })
            .collect();
        for pull in pulls {
            world.assert_whole(&pull.join().unwrap().unwrap(), GGUF);
        }
    });
    assert!(waited.into_inner());
    assert_eq!(world.server.requests_of(GGUF), [(0, 2_000_000)]);
}

#[test]
fn a_cancelled_pull_goes_on_where_it_was() {
    let world = World::with_gguf(2_000_000);
    world.server.state().bytes_per_second = Some(4_000_000);
    let cancel = AtomicBool::new(false);
    let error = world.pull_with(NAME, &cancel, &mut |step| {
        cancel.fetch_or(step.phase == Phase::Downloading && step.done_bytes > 100_000, Ordering::Relaxed);
    });
    assert!(matches!(error, Err(HubError::Cancelled { .. })), "{error:?}");
    let here = world.partial().unwrap();
    assert!(here.len() > 100_000 && content(2_000_000, 0).starts_with(&here));
    let local = world.hub().list();
    assert_eq!((local[0].complete, local[0].here_bytes), (false, here.len() as u64));
    let path = world.pull(NAME).unwrap();
    world.assert_whole(&path, GGUF);
    assert_eq!(world.server.requests_of(GGUF)[1].0, here.len() as u64);
}

#[test]
fn a_full_disk_is_noticed_first() {
    let world = World::with_gguf(10);
    let hash = "ab".repeat(32);
    let file = format!(r#"{{"rfilename":"tiny.gguf","size":{},"lfs":{{"sha256":"{hash}"}}}}"#, 1u64 << 49);
    world.server.state().listing = Some((200, format!(r#"{{"sha":"{COMMIT}","siblings":[{file}]}}"#)));
    let error = world.error(NAME);
    assert!(error.starts_with("not enough space in ") && error.contains("takes 562949954 MB more, "), "{error}");
    assert_eq!(world.server.requests_of(GGUF), []);
}

#[test]
fn what_is_not_ours_is_not_removed() {
    let world = folder_world();
    let path = world.pull(NAME).unwrap();
    fs::write(path.join("notes.md"), "mine").unwrap();
    let removed = world.hub().remove(NAME).unwrap();
    assert_eq!((removed[0].freed_bytes > 1_103_023, &removed[0].left[..]), (true, &[path.join("notes.md")][..]));
    assert_eq!(world.names(), ["notes.md"]);
    assert!(world.hub().list().is_empty());

    let error = |name: &str| world.hub().remove(name).unwrap_err().to_string();
    assert!(error(path.to_str().unwrap()).contains("is a path, and only models that `kapitsa pull` brought"));
    assert!(error("../x").contains("is a path"));
    assert!(error("hf:owner/other").contains("is not in "));
    assert!(error("smollm2-135m").contains("is not in "));
    assert!(error("nothing").starts_with("no model `nothing`"));
}

#[test]
fn a_model_that_is_being_pulled_is_not_removed() {
    let world = World::with_gguf(1_000_000);
    world.server.state().bytes_per_second = Some(2_000_000);
    let mut refused = None;
    world
        .pull_with(NAME, &AtomicBool::new(false), &mut |step| {
            if refused.is_none() && step.done_bytes > 0 {
                refused = Some(world.hub().remove(NAME).unwrap_err().to_string());
            }
        })
        .unwrap();
    assert_eq!(
        refused.unwrap(),
        "`hf:owner/name` is being pulled by another process; stop that one, or wait until it has ended"
    );
    world.hub().remove(NAME).unwrap();
}

#[cfg(unix)]
#[test]
fn links_lead_nowhere() {
    use std::os::unix::fs::symlink;
    let world = World::with_gguf(50_000);
    let outside = world.folder.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("precious"), "kept").unwrap();

    // In the place of a folder.
    fs::create_dir_all(world.home().join("models/hf")).unwrap();
    symlink(&outside, world.home().join("models/hf/owner")).unwrap();
    assert!(world.error(NAME).contains("is not a folder of its own"), "{}", world.error(NAME));
    assert!(world.hub().remove(NAME).unwrap_err().to_string().contains("is not in"));
    fs::remove_file(world.home().join("models/hf/owner")).unwrap();

    // In the place of the file.
    world.pull(NAME).unwrap();
    let path = world.repository().join(GGUF);
    fs::remove_file(&path).unwrap();
    symlink(outside.join("precious"), &path).unwrap();
    world.pull(NAME).unwrap();
    world.assert_whole(&path, GGUF);
    fs::remove_file(&path).unwrap();
    symlink(outside.join("precious"), &path).unwrap();
    world.hub().remove(NAME).unwrap();
    assert_eq!(fs::read_to_string(outside.join("precious")).unwrap(), "kept");
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
}
