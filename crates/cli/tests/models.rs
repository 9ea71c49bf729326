//! `pull`, `list` and `rm` as a person and a script use them, and a pull that is killed again and again.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{kapitsa, path, stdout};
use kapitsa_testkit::{FakeHub, random::Rng, tiny};
use serde_json::Value;

/// A home of our own, and a hub.
struct World {
    folder: tempfile::TempDir,
    hub: FakeHub,
}

impl World {
    fn new(files: &[(&str, &[u8])]) -> World {
        World { folder: tempfile::tempdir().unwrap(), hub: FakeHub::start(files) }
    }

    fn kapitsa(&self, args: &[&str]) -> Command {
        let mut command = kapitsa(args);
        command.env("KAPITSA_HOME", self.folder.path().join("höme")).env("KAPITSA_HF_ENDPOINT", &self.hub.endpoint);
        command.env_remove("HF_TOKEN").env("HF_TOKEN_PATH", self.folder.path().join("token"));
        command
    }

    fn ok(&self, args: &[&str]) -> String {
        stdout(&self.kapitsa(args).output().unwrap())
    }

    fn error(&self, args: &[&str]) -> String {
        let output = self.kapitsa(args).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let text = String::from_utf8(output.stderr).unwrap();
        text.lines().last().unwrap().strip_prefix("error: ").unwrap().to_owned()
    }

    fn repository(&self) -> PathBuf {
        self.folder.path().join("höme/models/hf/owner/name")
    }
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn a_model_is_pulled_listed_run_and_removed() {
    let model = tempfile::NamedTempFile::new().unwrap();
    tiny::write_speaking_llama(model.path());
    let bytes = fs::read(model.path()).unwrap();
    let world = World::new(&[("tiny.gguf", &bytes)]);
    let name = "hf:owner/name:tiny.gguf";

    let answer = world.ok(&["run", "--model", name, "--max-tokens", "4", "hello"]);
    assert!(answer.len() > 1, "{answer:?}");
    let place = world.repository().join("tiny.gguf");
    assert_eq!(world.ok(&["pull", name]), format!("{}\n", path(&place)));
    assert_eq!(json(&world.ok(&["pull", "--json", name]))["models"][0]["path"], path(&place));
    assert_eq!(world.hub.requests_of("tiny.gguf").len(), 1);

    let listed = &json(&world.ok(&["list", "--json"]))["models"][0];
    assert_eq!((&listed["name"], &listed["complete"]), (&"hf:owner/name".into(), &true.into()));
    assert_eq!((listed["size_bytes"].as_u64(), &listed["path"]), (Some(bytes.len() as u64), &path(&place).into()));
    assert!(world.ok(&["list"]).starts_with("hf:owner/name  "));

    let removed = world.ok(&["rm", "hf:owner/name"]);
    assert!(removed.starts_with("removed hf:owner/name: ") && removed.ends_with(" freed\n"), "{removed}");
    assert_eq!(json(&world.ok(&["list", "--json"]))["models"], serde_json::json!([]));
    assert!(world.error(&["rm", "hf:owner/name"]).contains("is not in "));
    assert!(world.error(&["rm", path(model.path())]).contains("is a path"));
}

#[test]
fn the_catalog_says_what_can_be_had() {
    let world = World::new(&[]);
    let text = world.ok(&["list", "--all"]);
    let line =
        |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{name}: {text}"));
    assert!(line("smollm2-135m:4bit").contains("98 MB") && line("smollm2-135m:4bit").contains("can be pulled"));
    assert!(line("flint:4bit").contains("not built yet"));
    let catalog = json(&world.ok(&["list", "--all", "--json"]));
    let of = |name: &str| catalog["catalog"].as_array().unwrap().iter().find(|model| model["name"] == name).unwrap();
    assert_eq!((&of("smollm2-135m")["built"], &of("flint")["built"]), (&true.into(), &false.into()));
    assert_eq!(of("4b")["variants"][0]["sources"][0], "hf:mlx-community/Qwen3.5-4B-bf16");

    let error = world.error(&["pull", "smollm2-135m", "flint"]);
    assert!(error.starts_with("`flint` is of the family `flint`, which is not built yet; built are llama"), "{error}");
    assert!(world.error(&["run", "--model", "5b", "hello"]).contains("the catalog has smollm2-135m, 4b"));
    assert_eq!(world.hub.state().seen.len(), 0);
}

#[test]
fn the_token_comes_from_the_environment_or_the_file_of_the_hubs_tools() {
    let world = World::new(&[("a.gguf", b"a")]);
    world.hub.state().refuse_all = Some((403, ""));
    fs::write(world.folder.path().join("token"), "from_file\n").unwrap();
    let pull = |set: &[(&str, &str)]| {
        let mut command = world.kapitsa(&["pull", "hf:owner/name"]);
        command.envs(set.iter().copied());
        let text = String::from_utf8(command.output().unwrap().stderr).unwrap();
        assert!(text.contains("access to owner/name was denied (403)") && !text.contains("from_"), "{text}");
        world.hub.state().seen.last().unwrap().authorization.clone().unwrap()
    };
    assert_eq!(pull(&[]), "Bearer from_file");
    assert_eq!(pull(&[("HF_TOKEN", "from_hf")]), "Bearer from_hf");
    assert_eq!(pull(&[("HF_TOKEN", "from_hf"), ("KAPITSA_HF_TOKEN", "from_ours")]), "Bearer from_ours");
}

const KILLS: usize = 50;

/// What a killed process may have had on the way and not yet on disk: what lies in the sockets' buffers and in the process. The
/// hub sends slowly and the client writes at once, so this is far from full.
const IN_FLIGHT_BYTES: u64 = 1 << 20;

/// Each file, and how much of it is on disk: all of it under its name, or a part.
fn on_disk(folder: &Path, name: &str) -> u64 {
    let partial = || {
        let entries = fs::read_dir(folder).ok()?;
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let start = format!(".{name}.");
        names
            .into_iter()
            .find(|file| file.starts_with(&start) && file.ends_with(".partial"))
            .map(|file| folder.join(file))
    };
    let size = |path: PathBuf| fs::metadata(path).ok().map(|data| data.len());
    size(folder.join(name)).or_else(|| size(partial()?)).unwrap_or(0)
}

#[test]
fn a_pull_that_is_killed_again_and_again_downloads_nothing_twice() {
    let mut random = Rng(50);
    let mut bytes = |len: usize| -> Vec<u8> { (0..len).map(|_| (random.bits() >> 56) as u8).collect() };
    let files = [
        ("config.json", br#"{"model_type":"llama"}"#.to_vec()),
        ("model-00001-of-00002.safetensors", bytes(1_500_000)),
        ("model-00002-of-00002.safetensors", bytes(2_500_000)),
        ("tokenizer.json", bytes(60_000)),
    ];
    let world = World::new(&files.each_ref().map(|(name, bytes)| (*name, &bytes[..])));
    world.hub.state().bytes_per_second = Some(600_000);
    let folder = world.repository();
    let mut moments = Rng(7);
    for round in 0..=KILLS {
        let here = files.each_ref().map(|(name, _)| on_disk(&folder, name));
        let first = world.hub.state().seen.len();
        let mut command = world.kapitsa(&["pull", "hf:owner/name"]);
        if round == KILLS {
            world.hub.state().bytes_per_second = None;
            stdout(&command.output().unwrap());
        } else {
            let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            std::thread::sleep(Duration::from_millis(moments.bits() % 300));
            child.kill().unwrap();
            child.wait().unwrap();
        }
        world.hub.settle();
        // Of each file at most one request, for what is not on disk.
        let seen = world.hub.state().seen[first..].to_vec();
        for ((name, bytes), here) in files.iter().zip(here) {
            let requests: Vec<_> = seen.iter().filter(|seen| seen.path.ends_with(&format!("/{name}"))).collect();
            assert!(requests.len() <= 1, "round {round}: {requests:?}");
            assert!(here < bytes.len() as u64 || requests.is_empty(), "round {round}: {name} was whole");
            let now = on_disk(&folder, name);
            assert!(now >= here, "round {round}: {name} had {here} bytes and has {now}");
            for request in requests {
                assert_eq!(request.from, here, "round {round}: {name}");
                assert!(
                    request.from + request.sent_bytes <= now + IN_FLIGHT_BYTES,
                    "round {round}: {name} {request:?} {now}"
                );
            }
        }
    }
    for (name, bytes) in &files {
        assert!(fs::read(folder.join(name)).unwrap() == *bytes, "{name}");
    }
    let left: Vec<_> =
        fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert_eq!(left.len(), files.len() + 1, "{left:?}");
}
