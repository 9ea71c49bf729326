//! The vocabularies and templates of real GGUF files, where the files are there.

use kapitsa_testkit::{Tensors, fixture, real_model};
use kapitsa_text::{ChatTemplate, Detokenizer, GgufVocabulary, Message, RenderOptions, Specials, Tokenizer};
use kapitsa_weights::{Checkpoint, TokenizerFiles};
use serde_json::Value;

use crate::fixtures::{ids, json};

struct Real {
    tokenizer: Tokenizer,
    template: ChatTemplate,
}

fn open(name: &str) -> Option<Real> {
    let checkpoint = Checkpoint::open(&real_model(name)?).unwrap();
    let TokenizerFiles::Gguf(metadata) = checkpoint.tokenizer_files().unwrap() else { panic!("{name} is a GGUF file") };
    let key = |name: &str| format!("tokenizer.ggml.{name}");
    let strings = |name: &str| -> Vec<String> {
        metadata.opt_strings(&key(name)).unwrap().unwrap().iter().map(String::from).collect()
    };
    let types = metadata.opt_u32s(&key("token_type")).unwrap().unwrap();
    let id = |name: &str| metadata.opt_u32(&key(name)).unwrap();
    let vocabulary = GgufVocabulary {
        model: metadata.opt_str(&key("model")).unwrap().unwrap().to_owned(),
        pre: metadata.opt_str(&key("pre")).unwrap().map(String::from),
        tokens: strings("tokens"),
        token_types: Some(types.into_iter().map(|kind| kind as i32).collect()),
        merges: Some(strings("merges")),
        bos: id("bos_token_id"),
        eos: id("eos_token_id"),
        unknown: id("unknown_token_id"),
        padding: id("padding_token_id"),
        add_bos: metadata.opt_bool(&key("add_bos_token")).unwrap(),
        ..GgufVocabulary::default()
    };
    let tokenizer = Tokenizer::from_gguf(vocabulary).unwrap();
    let template = ChatTemplate::new(metadata.opt_str("tokenizer.chat_template").unwrap().unwrap()).unwrap();
    Some(Real { tokenizer, template })
}

fn oracle(name: &str) -> (Vec<Value>, Tensors) {
    let notes = std::fs::read_to_string(fixture(&format!("oracle/real/{name}.json"))).unwrap();
    let notes: Value = serde_json::from_str(&notes).unwrap();
    (notes["prompts"].as_array().unwrap().clone(), Tensors::fixture(&format!("oracle/real/{name}.safetensors")))
}

#[test]
fn prompts_and_replies_equal_those_of_the_oracle() {
    check_prompts_and_replies(&["smollm2-135m", "qwen2.5-coder-0.5b"]);
}

#[test]
#[ignore = "1.1 GB of weights: see CONTRIBUTING.md"]
fn prompts_and_replies_of_the_larger_model_equal_those_of_the_oracle() {
    check_prompts_and_replies(&["qwen2.5-coder-1.5b"]);
}

fn check_prompts_and_replies(models: &[&str]) {
    for &name in models {
        let Some(Real { tokenizer, template }) = open(name) else { continue };
        let (prompts, tensors) = oracle(name);
        for (index, prompt) in prompts.iter().enumerate() {
            let text = prompt["text"].as_str().unwrap();
            let tokens: Vec<u32> = tensors.i64(&format!("tokens.{index}")).iter().map(|&id| id as u32).collect();
            let (want, reply) = tokens.split_at(prompt["prompt_tokens"].as_u64().unwrap() as usize);
            assert_eq!(tokenizer.encode(text, Specials::Parse).unwrap(), want, "{name} {index}");
            assert_eq!(tokenizer.encode_prompt(&text.into()).unwrap(), want, "{name} {index}: no BOS in these models");
            if prompt["kind"] == "chat" {
                // The question is between the user's header and its end; the rest is the template's.
                let user = text.split("<|im_start|>user\n").nth(1).unwrap().split("<|im_end|>").next().unwrap();
                let tokenizer = Some(&tokenizer);
                let options = RenderOptions { add_generation_prompt: true, tokenizer, ..RenderOptions::default() };
                let rendered = template.render(&[Message::user(user)], &options).unwrap();
                assert_eq!(rendered.text, text, "{name} {index}");
            }
            // The reference writes control tokens out.
            let mut detokenizer = Detokenizer::new(&tokenizer);
            let mut shown = String::new();
            for &id in reply {
                if tokenizer.is_special(id) {
                    shown += &detokenizer.finish();
                    shown += tokenizer.token_text(id);
                }
                shown += &detokenizer.push(id);
            }
            shown += &detokenizer.finish();
            assert_eq!(shown, prompt["greedy"].as_str().unwrap(), "{name} {index}");
        }
    }
}

#[test]
fn ids_of_nasty_texts_equal_the_reference() {
    for (name, cases) in json("real.json").as_object().unwrap() {
        let Some(Real { tokenizer, .. }) = open(name) else { continue };
        for case in cases.as_array().unwrap() {
            let text = case[0].as_str().unwrap();
            assert_eq!(tokenizer.encode(text, Specials::Parse).unwrap(), ids(&case[1]), "{name}: {text:?}");
            let plain = case.get(2).unwrap_or(&case[1]);
            assert_eq!(tokenizer.encode(text, Specials::AsText).unwrap(), ids(plain), "{name}: {text:?}");
        }
    }
}

#[test]
fn the_ends_of_a_turn_are_known() {
    if let Some(Real { tokenizer, .. }) = open("smollm2-135m") {
        assert_eq!((tokenizer.eos_ids(), tokenizer.eos_id()), (&[0, 2][..], Some(2)));
        assert_eq!((tokenizer.bos_id(), tokenizer.adds_bos()), (Some(1), false));
    }
    if let Some(Real { tokenizer, .. }) = open("qwen2.5-coder-0.5b") {
        assert_eq!(tokenizer.eos_ids(), [151_643, 151_645]);
        let call = tokenizer.id_of("<tool_call>").unwrap();
        assert!(!tokenizer.is_special(call) && tokenizer.is_special(151_645));
        assert_eq!(tokenizer.vocab_len(), 151_936);
    }
}

#[test]
fn a_tool_conversation_renders_with_a_real_template() {
    let Some(Real { tokenizer, template }) = open("qwen2.5-coder-0.5b") else { return };
    let call = serde_json::json!([{"type": "function", "function": {"name": "ls", "arguments": "{\"path\": \"é\"}"}}]);
    let mut asks = Message::assistant("");
    asks.fields.insert("tool_calls".to_owned(), call);
    let messages = [Message::user("list"), asks, Message::new("tool", "a\nb"), Message::new("tool", "c")];
    let tools = serde_json::json!([{"type": "function", "function": {"name": "ls", "parameters": {}}}]);
    let options = RenderOptions { tools: Some(tools), tokenizer: Some(&tokenizer), ..RenderOptions::default() };
    let prompt = template.render(&messages, &options).unwrap();
    let want = "<|im_start|>user\nlist<|im_end|>\n<|im_start|>assistant\n<tool_call>\n{\"name\": \"ls\", \"arguments\": \
                {\"path\": \"é\"}}\n</tool_call><|im_end|>\n<|im_start|>user\n<tool_response>\na\nb\n</tool_response>\n\
                <tool_response>\nc\n</tool_response><|im_end|>\n";
    assert!(prompt.text.ends_with(want), "{}", prompt.text);
    assert!(
        prompt
            .text
            .contains("\n{\"type\": \"function\", \"function\": {\"name\": \"ls\", \"parameters\": {}}}\n</tools>")
    );
}
