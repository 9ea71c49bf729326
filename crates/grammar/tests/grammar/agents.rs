//! The schemas that coding agents send with their tools.

use kapitsa_grammar::Grammar;
use serde_json::{Value, json};

use crate::common::{assert_valid, real_models, small_models, walk};

/// Of the requests of Claude Code, Codex, Copilot, goose, Hermes, opencode and Pi; descriptions are filler.
fn schemas() -> Vec<(String, Value)> {
    let all: Vec<Value> = serde_json::from_str(include_str!("agents.json")).unwrap();
    all.iter().map(|one| (format!("{} {}", one["agent"], one["name"]), one["schema"].clone())).collect()
}

#[test]
fn every_one_compiles_and_what_it_allows_is_valid() {
    for model in small_models().into_iter().take(1).chain(real_models()) {
        for (index, (name, schema)) in schemas().iter().enumerate() {
            let compiled =
                model.compile(&Grammar::json_schema(schema).unwrap()).unwrap_or_else(|error| panic!("{name}: {error}"));
            let text = walk(&model, &compiled, 20, &mut fastrand::Rng::with_seed(index as u64));
            assert_valid(schema, &text);
        }
    }
}

#[test]
fn the_tools_of_an_agent_make_one_grammar() {
    let model = &small_models()[0];
    let schemas = schemas();
    let tools = schemas.iter().filter(|(name, _)| name.starts_with("\"claude-code\"")).map(|(name, schema)| {
        let head = format!("{{\"name\": {}, \"arguments\": ", json!(name));
        Grammar::concat([
            Grammar::literal(&head),
            Grammar::json_schema(schema).unwrap(),
            Grammar::literal("}</tool_call>"),
        ])
    });
    let grammar = Grammar::text_with_calls([("<tool_call>".to_owned(), Grammar::choice(tools))]);
    let compiled = model.compile(&grammar).unwrap();
    for seed in 0..5 {
        walk(model, &compiled, 50, &mut fastrand::Rng::with_seed(seed));
    }
}
