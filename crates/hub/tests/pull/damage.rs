//! Connections that break, servers that misbehave, files that are wrong.

use std::fs;
use std::time::Duration;

use kapitsa_testkit::fake_hub::{COMMIT, FakeFile};

use crate::world::{GGUF, World, content};

const NAME: &str = "hf:owner/name";
const LEN: usize = 2_000_000;

#[test]
fn a_body_that_breaks_off_goes_on_at_the_next_byte() {
    let world = World::with_gguf(LEN);
    world.server.state().cuts.extend([0, 300_000, 1, 700_000]);
    let path = world.pull(NAME).unwrap();
    world.assert_whole(&path, GGUF);
    let expected = [(0, 0), (0, 300_000), (300_000, 1), (300_001, 700_000), (1_000_001, 999_999)];
    assert_eq!(world.server.requests_of(GGUF), expected);
}

#[test]
fn a_hub_that_never_gets_far_is_given_up() {
    let world = World::with_gguf(LEN);
    world.server.state().cuts.extend([10; 100]);
    let error = world.error(NAME);
    assert!(error.starts_with("owner/name:tiny.gguf could not be fetched from 127.0.0.1: "), "{error}");
    assert_eq!(world.server.requests_of(GGUF).len(), 5);
    assert_eq!(world.partial().unwrap().len(), 50, "what has come is kept");
    world.server.state().cuts.clear();
    world.assert_whole(&world.pull(NAME).unwrap(), GGUF);
    assert_eq!(world.server.requests_of(GGUF)[5], (50, LEN as u64 - 50));
}

#[test]
fn a_server_that_knows_no_ranges_is_read_over() {
    let world = World::with_gguf(LEN);
    world.server.state().ignores_range = true;
    world.server.state().cuts.extend([1_000_000, 500_000]);
    world.assert_whole(&world.pull(NAME).unwrap(), GGUF);
    let froms: Vec<u64> = world.server.requests_of(GGUF).into_iter().map(|(from, _)| from).collect();
    assert_eq!(froms, [0, 1_000_000, 1_000_000], "the second answer ended before what was here");
}

#[test]
fn a_stalled_server_is_left_and_a_slow_one_is_not() {
    let mut world = World::with_gguf(LEN);
    world.timing.stall = Duration::from_millis(400);
    world.server.state().stalls = true;
    world.server.state().cuts.push_back(400_000);
    world.assert_whole(&world.pull(NAME).unwrap(), GGUF);
    let requests = world.server.requests_of(GGUF);
    assert_eq!((requests[0], requests[1].0), ((0, 400_000), 400_000));

    // The whole takes longer than the time after which silence counts as a stall.
    let mut slow = World::with_gguf(60_000);
    slow.timing.stall = Duration::from_secs(2);
    slow.server.state().bytes_per_second = Some(20_000);
    slow.assert_whole(&slow.pull(NAME).unwrap(), GGUF);
    assert_eq!(slow.server.requests_of(GGUF).len(), 1);
}

#[test]
fn errors_of_the_server_pass() {
    let world = World::with_gguf(LEN);
    world.server.state().refusals.extend([(500, ""), (503, ""), (429, ""), (502, "")]);
    world.assert_whole(&world.pull(NAME).unwrap(), GGUF);
    assert_eq!(world.server.requests_of(GGUF).len(), 5);

    let world = World::with_gguf(LEN);
    world.server.state().refuse_all = Some((503, ""));
    assert!(world.error(NAME).contains("HTTP status 503"), "{}", world.error(NAME));
    world.server.state().refuse_all = None;
    world.server.state().refusals.push_back((418, ""));
    assert!(world.error(NAME).contains("cannot be used: HTTP status 418"), "and some do not");
}

#[test]
fn a_wrong_file_is_named_and_only_it_comes_again() {
    let (right, other) = (content(LEN, 0), content(300_000, 5));
    let world = World::new(&[("config.json", b"{}"), ("a.safetensors", &right), ("b.safetensors", &other)]);
    let mut wrong = right.clone();
    wrong[1_234_567] ^= 4;
    world.server.state().files[1].bytes = wrong;
    let error = world.error(NAME);
    let hashes: Vec<&str> = error.split([' ', ',', ';']).filter(|word| word.len() == 64).collect();
    assert!(error.contains("a.safetensors") && hashes.len() == 2 && hashes[0] != hashes[1], "{error}");
    assert_eq!(world.names().iter().filter(|name| name.contains("a.safetensors")).count(), 0);
    world.server.state().files[1].bytes = right.clone();
    let path = world.pull(NAME).unwrap();
    assert!(fs::read(path.join("a.safetensors")).unwrap() == right);
    assert_eq!(world.server.requests_of("a.safetensors"), [(0, LEN as u64); 2]);
    assert_eq!(world.server.requests_of("b.safetensors").len(), 1);
}

#[test]
fn a_file_that_changes_between_tries_is_begun_anew() {
    let world = World::with_gguf(LEN);
    world.server.state().cuts.extend([500_000, 500_000, 0, 0, 0]);
    world.error(NAME);
    let fresh = content(LEN - 7, 99);
    world.server.state().cuts.clear();
    world.server.state().files[0] = FakeFile { name: GGUF.into(), bytes: fresh.clone(), listed: fresh };
    world.assert_whole(&world.pull(NAME).unwrap(), GGUF);
    assert_eq!(world.server.requests_of(GGUF).last(), Some(&(0, LEN as u64 - 7)));
    assert_eq!(world.names(), [GGUF], "nothing is left of the old one");
}

#[test]
fn a_hub_that_contradicts_itself_is_refused() {
    let world = World::with_gguf(LEN);
    let hash = "ab".repeat(32);
    let file = format!(r#"{{"rfilename":"tiny.gguf","size":{LEN},"lfs":{{"sha256":"{hash}"}}}}"#);
    world.server.state().listing = Some((200, format!(r#"{{"sha":"{COMMIT}","siblings":[{file}]}}"#)));
    let error = world.error(NAME);
    assert!(error.contains("owner/name:tiny.gguf is now ") && error.contains(&hash), "{error}");
    assert!(error.contains("run `kapitsa rm hf:owner/name` and pull again"), "{error}");
}

#[test]
fn parts_that_were_not_asked_for_are_not_taken() {
    let world = World::with_gguf(LEN);
    world.server.state().cuts.push_back(1000);
    world.server.state().content_range = Some(format!("bytes 0-{}/{LEN}", LEN - 1));
    let error = world.error(NAME);
    assert!(error.contains("it sent the bytes from 0, expected those from 1000"), "{error}");
    world.server.state().content_range = Some("bytes 1000-".into());
    assert!(world.error(NAME).contains("which makes no sense"));
    assert_eq!(world.partial().unwrap(), content(1000, 0));
    world.server.state().content_range = None;
    world.assert_whole(&world.pull(NAME).unwrap(), GGUF);
}

#[test]
fn answers_that_are_none_are_refused_in_one_line() {
    let world = World::with_gguf(LEN);
    for listing in ["", "<html>busy</html>", "[]", r#"{"sha":"../x","siblings":[]}"#, "{\"sha\":\"\n"] {
        world.server.state().listing = Some((200, listing.into()));
        let error = world.error(NAME);
        assert!(error.starts_with("the hub's answer for owner/name cannot be used: "), "{error}");
    }
    world.server.state().listing =
        Some((200, format!(r#"{{"sha":"{COMMIT}","siblings":[{{"rfilename":"../../x.gguf"}}]}}"#)));
    assert!(world.error(NAME).contains("has a file `../../x.gguf` whose name has a part that begins with a dot"));
    assert!(!world.home().join("x.gguf").exists());
}

#[test]
fn a_damaged_record_is_made_anew() {
    let world = World::with_gguf(LEN);
    let path = world.pull(NAME).unwrap();
    for record in ["", "{}", r#"{"source":{"hugging_face":"owner/name"},"files":[{"name":"../x.gguf"}]}"#] {
        fs::write(world.repository().join(".kapitsa.json"), record).unwrap();
        assert!(world.hub().list().is_empty());
        assert_eq!(world.pull(NAME).unwrap(), path);
    }
    assert_eq!(world.server.requests_of(GGUF).len(), 1, "the file is verified, not fetched");
}
