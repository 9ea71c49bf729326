//! Writes the first inputs of every target to `corpus/<target>`: tiny models of every family and format that load.

use std::path::Path;

use kapitsa_fuzz::models::{FAMILIES, GGUF_FAMILIES, PACKINGS, SMALL, WIDE, config, folder, gguf};
use kapitsa_fuzz::{models, parts};
use kapitsa_testkit::fixture;
use kapitsa_testkit::gguf::{GgufBuilder, MetaValue};
use serde_json::{Value, json};

/// GGUF types with blocks of 32 columns or none, and those with blocks of 256.
const NARROW_TYPES: &[u32] = &[0, 1, 2, 3, 6, 7, 8, 20, 30, 39];
const WIDE_TYPES: &[u32] = &[10, 11, 12, 13, 14, 16, 17, 18, 19, 21, 22, 23, 29, 34, 35];

fn main() {
    ggufs();
    folders();
    tokenizers();
    templates();
    answers();
    grammars();
}

fn answers() {
    let files = ["hermes_json", "qwen_xml", "glm", "plain_json", "nemotron_json"];
    for (dialect, file) in files.iter().enumerate() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../crates/dialects/tests/calls/{file}.txt"));
        let text = std::fs::read_to_string(path).expect("the answers of the tests");
        for (index, case) in text.split("\n==== ").enumerate() {
            let answer = case.split_once('\n').map_or("", |(_, answer)| answer);
            let data = [&[dialect as u8, 3], answer.as_bytes()].concat();
            write("calls", &format!("{file}-{index}"), &data);
        }
    }
}

fn grammars() {
    let tools = include_str!("../../crates/grammar/tests/grammar/agents.json");
    let tools: Vec<Value> = serde_json::from_str(tools).expect("a list of tools");
    for (index, tool) in tools.iter().enumerate() {
        for kind in [0, 1] {
            let data = [&[kind], tool["schema"].to_string().as_bytes()].concat();
            write("grammar", &format!("schema-{index}-{kind}"), &data);
        }
    }
    let lark = "start: \"begin\" LF line+ \"end\"\nline: \"+\" /(.*)/ LF -> line\n%import common.LF\n%ignore /[ \\t]+/";
    for (kind, text) in [(2, r"(?i)[a-z]{1,3}\d+|\p{L}*"), (3, lark), (4, lark)] {
        write("grammar", &format!("text-{kind}"), &[&[kind], text.as_bytes()].concat());
    }
}

fn ggufs() {
    let mut ggufs = vec![];
    for family in GGUF_FAMILIES {
        for &kind in NARROW_TYPES.iter().take(if *family == "llama" { usize::MAX } else { 3 }) {
            ggufs.push((format!("{family}-{kind}"), gguf(family, SMALL, kind)));
        }
    }
    for &kind in WIDE_TYPES {
        ggufs.push((format!("wide-{kind}"), gguf("llama", WIDE, kind)));
    }
    let yarn = gguf("qwen3", SMALL, 8)
        .set("qwen3.rope.scaling.type", "yarn")
        .set("qwen3.rope.scaling.factor", 4.0f32)
        .set("qwen3.rope.scaling.original_context_length", 32u32);
    ggufs.push(("yarn".into(), yarn));
    let window = gguf("qwen2", SMALL, 2).set("qwen2.attention.sliding_window", 2u32);
    ggufs.push(("window".into(), window));
    for (name, file) in ggufs {
        let data = file.build();
        assert!(kapitsa_fuzz::gguf(&data), "{name} does not load");
        write("gguf", &name, &data);
    }
}

fn folders() {
    let mut folders = vec![];
    for family in FAMILIES {
        for &packing in PACKINGS {
            let (config, weights) = folder(family, SMALL, packing);
            folders.push((format!("{family}-{packing:?}"), config, weights));
        }
    }
    for scaling in [
        json!({"rope_type": "linear", "factor": 2.0}),
        json!({"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64}),
        json!({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}),
    ] {
        let mut config = config("llama", SMALL);
        let kind = scaling["rope_type"].as_str().unwrap_or_default().to_string();
        config["rope_scaling"] = scaling;
        folders.push((kind, config, folder("llama", SMALL, models::Packing::F32).1));
    }
    let mut windowed = config("qwen2", SMALL);
    windowed["use_sliding_window"] = json!(true);
    windowed["sliding_window"] = json!(2);
    windowed["layer_types"] = json!(["sliding_attention"]);
    folders.push(("window".into(), windowed, folder("qwen2", SMALL, models::Packing::F32).1));
    for (name, config, weights) in folders {
        let data = parts::join(&[config.to_string().into_bytes(), weights]);
        assert!(kapitsa_fuzz::safetensors(&data), "{name} does not load");
        write("safetensors", &name, &data);
    }
}

fn tokenizers() {
    let files = read("text/tokenizer_json.json");
    for (name, entry) in files.as_object().expect("tokenizers by name") {
        let mut tokenizer = entry["tokenizer_json"].clone();
        if tokenizer["model"].is_null() {
            tokenizer["model"] = files["llama2"]["tokenizer_json"]["model"].clone();
        }
        let cases = entry["cases"].as_array().expect("a list of cases");
        let text: String = cases.iter().filter_map(|case| case[0].as_str()).take(20).collect();
        let data = parts::join(&[tokenizer.to_string().into(), entry["config"].to_string().into(), text.into()]);
        assert!(kapitsa_fuzz::tokenizer(&data), "{name} does not load");
        write("tokenizer", name, &data);
    }
    let byte_level = &read("text/byte_level.json")["vocabulary"];
    for pre in ["gpt-2", "llama-bpe", "qwen2", "smollm", "deepseek-coder"] {
        let file = vocabulary("gpt2", byte_level).set("tokenizer.ggml.pre", pre);
        let data = file.build();
        assert!(kapitsa_fuzz::tokenizer(&data), "{pre} does not load");
        write("tokenizer", &format!("gguf-{pre}"), &data);
    }
    for (name, entry) in read("text/sentencepiece.json").as_object().expect("vocabularies by name") {
        let data = vocabulary("llama", &entry["vocabulary"]).build();
        assert!(kapitsa_fuzz::tokenizer(&data), "{name} does not load");
        write("tokenizer", &format!("gguf-{name}"), &data);
    }
}

/// A GGUF file with the metadata of a tiny model and a tokenizer.
fn vocabulary(model: &str, vocabulary: &Value) -> GgufBuilder {
    let mut file = gguf("llama", SMALL, 0).set("tokenizer.ggml.model", model).set("tokenizer.ggml.eos_token_id", 2u32);
    file.tensors_mut().clear();
    let list = |key: &str, convert: &dyn Fn(&Value) -> MetaValue| {
        Some(MetaValue::Array(vocabulary[key].as_array()?.iter().map(convert).collect()))
    };
    let string = |value: &Value| MetaValue::from(value.as_str().expect("a string"));
    let arrays = [
        ("tokens", list("tokens", &string)),
        ("merges", list("merges", &string)),
        ("token_type", list("token_types", &|value| MetaValue::I32(value.as_i64().expect("an integer") as i32))),
        ("scores", list("scores", &|value| MetaValue::F32(value.as_f64().expect("a number") as f32))),
        ("add_space_prefix", vocabulary["add_space_prefix"].as_bool().map(MetaValue::Bool)),
    ];
    for (name, value) in arrays {
        if let Some(value) = value {
            file = file.set(&format!("tokenizer.ggml.{name}"), value);
        }
    }
    file
}

fn templates() {
    let file = read("text/templates.json");
    let messages = file["variables"]["messages"].to_string();
    for (index, feature) in file["features"].as_array().expect("a list of features").iter().enumerate() {
        let template = feature[0].as_str().expect("a template");
        write("template", &format!("feature-{index}"), &parts::join(&[template.into(), messages.clone().into()]));
    }
    for (name, family) in file["families"].as_object().expect("templates by name") {
        let template = family["template"].as_str().expect("a template");
        for (index, row) in family["rows"].as_array().expect("a list of rows").iter().enumerate() {
            let data = parts::join(&[template.into(), row["messages"].to_string().into()]);
            write("template", &format!("{name}-{index}"), &data);
        }
    }
    let plain = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}";
    let data = parts::join(&[plain.into(), messages.into()]);
    assert!(kapitsa_fuzz::template(&data), "the plain template does not render");
    write("template", "plain", &data);
}

fn read(name: &str) -> Value {
    let text = std::fs::read_to_string(fixture(name)).expect("a fixture");
    serde_json::from_str(&text).expect("a fixture is JSON")
}

fn write(target: &str, name: &str, data: &[u8]) {
    let folder = Path::new("corpus").join(target);
    std::fs::create_dir_all(&folder).expect("a folder for the corpus");
    std::fs::write(folder.join(name), data).expect("the corpus can be written");
}
