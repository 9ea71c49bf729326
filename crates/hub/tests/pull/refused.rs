//! Tokens, licences and addresses.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use kapitsa_testkit::FakeHub;

use crate::world::{GGUF, World, content};

const NAME: &str = "hf:owner/name";

#[test]
fn each_refusal_has_its_words_and_next_step() {
    let mut world = World::with_gguf(1000);
    let address = world.server.endpoint.clone();
    let mut refuse = |status, code, token: Option<&str>| {
        world.token = token.map(str::to_owned);
        world.server.state().refuse_all = Some((status, code));
        world.error(NAME)
    };
    let no_token = format!(
        "owner/name needs a token: make one with read access at {address}/settings/tokens, and set KAPITSA_HF_TOKEN or \
         HF_TOKEN to it"
    );
    assert_eq!(refuse(401, "GatedRepo", None), no_token);
    assert_eq!(refuse(401, "", None), no_token);
    let licence = refuse(403, "GatedRepo", Some("hf_x"));
    assert!(
        licence.starts_with(&format!("owner/name is gated: open {address}/owner/name with the account of")),
        "{licence}"
    );
    let denied = refuse(403, "", Some("hf_x"));
    assert!(denied.starts_with("access to owner/name was denied (403): the token is wrong, has expired"), "{denied}");
    assert!(refuse(401, "", Some("hf_x")).contains("was denied (401)"));
    let not_found = refuse(404, "RepoNotFound", None);
    assert!(
        not_found.starts_with(&format!("owner/name was not found at {address}; check the spelling, or set")),
        "{not_found}"
    );
    assert!(
        refuse(401, "RepoNotFound", None).starts_with("owner/name was not found"),
        "private or not there: same answer"
    );
    assert!(refuse(404, "", Some("hf_x")).ends_with("check the spelling"));
}

#[test]
fn a_gated_file_of_a_public_listing_is_named() {
    let mut world = World::with_gguf(1000);
    world.token = Some("hf_secret".into());
    world.server.state().refusals.push_back((403, "GatedRepo"));
    let error = world.error(NAME);
    assert!(error.starts_with("owner/name:tiny.gguf is gated: ") && !error.contains("hf_secret"), "{error}");
    assert!(world.pull(NAME).is_ok(), "once the licence is accepted");
}

#[test]
fn the_token_goes_to_the_hub_and_to_nobody_else() {
    let mut world = World::with_gguf(1_500_000);
    world.token = Some("hf_secret".into());
    let storage = FakeHub::start(&[(GGUF, &content(1_500_000, 0))]);
    storage.state().cuts.push_back(400_000);
    world.server.state().redirect = Some(format!("{}/storage", storage.endpoint));
    world.assert_whole(&world.pull(NAME).unwrap(), GGUF);
    let tokens = |hub: &FakeHub| hub.state().seen.iter().map(|seen| seen.authorization.clone()).collect::<Vec<_>>();
    assert_eq!(tokens(&storage), [None, None], "another port is another origin");
    assert_eq!(tokens(&world.server), vec![Some("Bearer hf_secret".to_owned()); 3]);
    assert_eq!(storage.requests_of(GGUF), [(0, 400_000), (400_000, 1_100_000)]);
}

#[test]
fn an_address_of_storage_that_has_expired_is_asked_for_anew() {
    let world = World::with_gguf(5000);
    let storage = FakeHub::start(&[(GGUF, &content(5000, 0))]);
    storage.state().refusals.push_back((403, "AccessDenied"));
    world.server.state().redirect = Some(format!("{}/storage", storage.endpoint));
    world.assert_whole(&world.pull(NAME).unwrap(), GGUF);
    assert_eq!(world.server.requests_of(GGUF).len(), 2);
}

#[test]
fn redirects_end_and_go_to_web_addresses_only() {
    let world = World::with_gguf(5000);
    for (to, expected) in [
        (
            format!("{}/owner/name/resolve/0123456789abcdef0123456789abcdef01234567", world.server.endpoint),
            "more than 10 times",
        ),
        ("file:///etc".to_owned(), "scheme file, which is not followed"),
        ("http://[".to_owned(), "points to no address"),
    ] {
        world.server.state().redirect = Some(to);
        let error = world.error(NAME);
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn a_host_that_does_not_answer_is_left_soon() {
    // Nobody listens here any more.
    let mut world = World::with_gguf(10);
    let gone = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap();
    world.server.endpoint = format!("http://{gone}");
    let error = world.error(NAME);
    assert!(error.starts_with("owner/name could not be fetched from 127.0.0.1: "), "{error}");

    // A listener that accepts and says nothing: the time for the next byte counts, not the patience of a person.
    world.timing.stall = Duration::from_millis(400);
    let silent = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    world.server.endpoint = format!("http://{}", silent.local_addr().unwrap());
    let started = Instant::now();
    let error = world.error(NAME);
    assert!(error.contains("nothing came for 0.4 s"), "{error}");
    assert!(started.elapsed() < Duration::from_secs(60));
}
