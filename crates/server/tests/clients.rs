//! Python programs against a model that says what the conversation wants it to say.

mod common;

use common::{Running, open_options, serve_llm, serve_script};
use kapitsa::Llm;
use kapitsa_testkit::agents::TEMPLATE;
use kapitsa_testkit::{python, tiny};

/// Runs a file of tests against a server that is open to all, and one with a key that takes no other names.
fn pytest(file: &str) {
    let (open, _) = serve_script(TEMPLATE);
    let model = tempfile::Builder::new().suffix(".gguf").tempfile().unwrap();
    tiny::write_speaking_llama(model.path());
    let strict = serve_llm(Llm::open(model.path(), &open_options()).unwrap(), |options| {
        options.strict_models = true;
        options.api_key = Some("secret".into());
    });
    let url = |server: &Running| format!("http://{}", server.address);
    python::pytest(file, &[("BASE_URL", &url(&open)), ("STRICT_URL", &url(&strict))]);
}

#[test]
fn the_official_clients_work() {
    pytest("test_clients.py");
}

#[test]
fn whatever_the_model_says_is_told_in_the_form_of_each_api() {
    pytest("test_dialogues.py");
}
