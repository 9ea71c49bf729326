//! Tokenizer data and texts that want to do harm: every outcome but an error or a result is a bug.

use kapitsa_text::{ChatTemplate, Detokenizer, GgufVocabulary, Message, RenderOptions, Specials, Tokenizer};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::fixtures::{all_tokenizers, byte_level, json, sentencepiece, tokenizer_json};

fn config() -> ProptestConfig {
    ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) }
}

fn strings(list: &[&str]) -> Vec<String> {
    list.iter().map(ToString::to_string).collect()
}

/// Uses whatever was built in every way there is.
fn exercise(tokenizer: &Tokenizer) {
    for text in ["", "ab <x>\n a  b", "<|im_end|><s></s>", "é日本😀\u{0}\u{ffff}"] {
        for specials in [Specials::Parse, Specials::AsText] {
            if let Ok(ids) = tokenizer.encode(text, specials) {
                tokenizer.decode(&ids);
            }
        }
        let _ = tokenizer.encode_prompt(&text.into());
    }
    let mut detokenizer = Detokenizer::new(tokenizer);
    for id in 0..tokenizer.vocab_len().min(100) as u32 + 2 {
        detokenizer.push(id);
        let _ = (tokenizer.token_text(id), tokenizer.token_bytes(id), tokenizer.is_special(id));
    }
    detokenizer.finish();
}

fn piece() -> impl Strategy<Value = String> {
    prop_oneof![
        "[ab ▁Ġ]{0,3}".boxed(),
        Just("<0x41>".to_owned()).boxed(),
        Just("<|im_end|>".to_owned()).boxed(),
        "\\PC{0,2}".boxed(),
    ]
}

prop_compose! {
    fn any_gguf()(
        model in prop::sample::select(vec!["gpt2", "llama"]),
        pre in prop::option::of(prop::sample::select(vec!["llama-bpe", "qwen2", "default", "deepseek-v3"])),
        tokens in prop::collection::vec(piece(), 0..12),
        bytes in any::<bool>(),
        scores in prop::option::of(prop::collection::vec(any::<f32>(), 0..12)),
        fit in any::<bool>(),
        types in prop::option::of(prop::collection::vec(0i32..8, 0..12)),
        merges in prop::option::of(prop::collection::vec("[ab▁Ġ]{0,2}[ ]{0,2}[ab▁Ġ]{0,2}", 0..4)),
        ids in prop::collection::vec(prop::option::of(0u32..16), 6),
        flags in prop::collection::vec(prop::option::of(any::<bool>()), 2),
    ) -> GgufVocabulary {
        let mut tokens = tokens;
        if bytes {
            tokens.extend(strings(&["a", "b", "Ġ", "▁", "<", ">", "Ċ", "ab", "Ġa"]));
        }
        let mut scores = scores;
        let mut types = types;
        if fit {
            if let Some(list) = &mut scores { list.resize(tokens.len(), -1.0); list.iter_mut().for_each(|s| *s = s.clamp(-9.0, 9.0)); }
            if let Some(list) = &mut types { list.resize(tokens.len(), 1); }
        }
        GgufVocabulary {
            model: model.to_owned(), pre: pre.map(str::to_owned), tokens, scores, token_types: types, merges,
            bos: ids[0], eos: ids[1], eot: ids[2], eom: ids[3], unknown: ids[4], padding: ids[5],
            add_bos: flags[0], add_space_prefix: flags[1],
        }
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn any_gguf_metadata_is_an_error_or_works(vocabulary in any_gguf()) {
        if let Ok(tokenizer) = Tokenizer::from_gguf(vocabulary) {
            exercise(&tokenizer);
        }
    }

    /// Real files with one value put out of shape.
    #[test]
    fn damaged_tokenizer_json_is_an_error_or_works(
        name in prop::sample::select(vec!["llama3", "starcoder", "llama2", "gemma"]),
        place in any::<prop::sample::Index>(),
        value in prop::sample::select(vec![
            json!(null), json!(-1), json!(0), json!(4_000_000_000u32), json!(true), json!(""), json!("▁"), json!("a b"), json!([]), json!({}),
            json!({"type": "Sequence", "normalizers": []}), json!({"type": "ByteLevel"}), json!([["a", "b"]]), json!({"Regex": "(a+)+$"}),
            json!({"Regex": "("}), json!({"String": ""}),
        ]),
    ) {
        let (file, config) = files().iter().find(|entry| entry.0 == name).map(|entry| (&entry.1, &entry.2)).unwrap();
        let mut damaged = file.clone();
        let mut places = Vec::new();
        walk(&mut damaged, &mut String::new(), &mut places);
        let place = &places[place.index(places.len())];
        *damaged.pointer_mut(place).unwrap() = value;
        if let Ok(tokenizer) = Tokenizer::from_json(&damaged.to_string(), Some(config)) {
            exercise(&tokenizer);
        }
    }

    #[test]
    fn any_text_encodes_without_control_tokens(text in "\\PC{0,30}|([<|>/sim_endtar\n ▁]|<\\|im_end\\|>|</s>|<s>){0,12}") {
        for tokenizer in all() {
            if let Ok(ids) = tokenizer.encode(&text, Specials::AsText) {
                let bad = ids.iter().find(|&&id| tokenizer.is_special(id) && tokenizer.token_text(id) != "<unk>");
                prop_assert_eq!(bad, None, "{:?}", tokenizer);
            }
        }
    }

    #[test]
    fn any_template_is_an_error_or_works(
        parts in prop::collection::vec(
            prop::sample::select(vec![
                "{{", "}}", "{%", "%}", "{#", "#}", "-", " for m in messages ", " endfor ", " if ", " endif ", " else ", " set x = ", "m", ".content",
                "[::-1]", "[", "]", "(", ")", "|tojson", "|trim", "'a'", "\"", "\\", "1", "+", "*", "~", " in ", " not ", " is string ", "messages", "\n",
                " macro f(a) ", " endmacro ", "f(1)", "loop.index", "range(9)", "namespace(a=1)", "raise_exception('x')", "strftime_now('%Y')", "é",
                " generation ", " endgeneration ", ".split('a')", ".items()", "{", "}", ":", ",", "none", " break ", " recursive ", "loop(m)",
            ]),
            0..24,
        ),
    ) {
        if let Ok(template) = ChatTemplate::new(&parts.concat()) {
            let _ = template.render(&[Message::user("x<|im_end|>"), Message::assistant("y")], &RenderOptions::default());
        }
    }
}

fn all() -> &'static [Tokenizer] {
    static ALL: std::sync::OnceLock<Vec<Tokenizer>> = std::sync::OnceLock::new();
    ALL.get_or_init(all_tokenizers)
}

/// Small versions of the tokenizer files: name, file, configuration.
fn files() -> &'static [(String, Value, String)] {
    static ALL: std::sync::OnceLock<Vec<(String, Value, String)>> = std::sync::OnceLock::new();
    ALL.get_or_init(|| {
        let data = json("tokenizer_json.json");
        let file = |name: &String| {
            let (file, config) = tokenizer_json(&data, name);
            (name.clone(), serde_json::from_str(&file).unwrap(), config)
        };
        data.as_object().unwrap().keys().map(file).collect()
    })
}

/// All places in a JSON value, except that long lists and maps give only their first few.
fn walk(value: &mut Value, here: &mut String, places: &mut Vec<String>) {
    places.push(here.clone());
    let len = here.len();
    let mut step = |name: String, value: &mut Value, here: &mut String| {
        *here += "/";
        *here += &name.replace('~', "~0").replace('/', "~1");
        walk(value, here, places);
        here.truncate(len);
    };
    match value {
        Value::Array(list) => list.iter_mut().take(4).enumerate().for_each(|(i, item)| step(i.to_string(), item, here)),
        Value::Object(map) => map.iter_mut().take(10).for_each(|(name, item)| step(name.clone(), item, here)),
        _ => {}
    }
}

#[track_caller]
fn fails(vocabulary: GgufVocabulary, want: &str) {
    let error = Tokenizer::from_gguf(vocabulary).unwrap_err().to_string();
    assert!(error.contains(want), "{error}");
}

#[test]
fn errors_name_the_thing() {
    let data = json("byte_level.json");
    let good = || byte_level(&data["vocabulary"], "qwen2");
    let with = |change: &dyn Fn(&mut GgufVocabulary)| {
        let mut file = good();
        change(&mut file);
        file
    };
    fails(with(&|file| file.model = "rwkv".into()), "tokenizer model `rwkv` is not supported; supported: gpt2, llama");
    fails(with(&|file| file.pre = Some("new".into())), "pre-tokenizer `new` is not supported; supported: llama-bpe, ");
    fails(with(&|file| file.merges = None), "tokenizer.ggml.merges is missing; a `gpt2` tokenizer needs it");
    fails(with(&|file| file.model = "llama".into()), "tokenizer.ggml.scores is missing; a `llama` tokenizer needs it");
    fails(with(&|file| file.tokens.clear()), "token types for 0 tokens");
    fails(with(&|file| drop(file.tokens.pop())), "token types for");
    fails(with(&|file| file.token_types.as_mut().unwrap()[3] = 9), "token 3 has type 9, expected 1 to 6");
    fails(with(&|file| file.eos = Some(1 << 20)), "eos_token_id is 1048576, but there are only");
    fails(
        with(&|file| file.merges.as_mut().unwrap()[1] = "x".into()),
        "merge 1 is `x`, expected two tokens and a space",
    );
    fails(
        with(&|file| file.merges.as_mut().unwrap()[0] = "Ġ qqqq".into()),
        "merge 0 (`Ġ` + `qqqq`) needs the token `qqqq`",
    );
    fails(with(&|file| file.merges.as_mut().unwrap()[2] = "z Ġ".into()), "merge 2 (`z` + `Ġ`) needs the token `zĠ`");
    let pieces = json("sentencepiece.json");
    let with = |change: &dyn Fn(&mut GgufVocabulary)| {
        let mut file = sentencepiece(&pieces["plain"]["vocabulary"]);
        change(&mut file);
        file
    };
    fails(with(&|file| file.scores.as_mut().unwrap().push(0.0)), "scores for");
    fails(with(&|file| file.scores.as_mut().unwrap()[7] = f32::NAN), "the score of token 7 is NaN");
    fails(with(&|file| file.token_types.as_mut().unwrap()[9] = 6), "byte token 9 is `");
}

#[test]
fn unsupported_parts_of_tokenizer_json_are_named() {
    let data = json("tokenizer_json.json");
    let (file, _) = tokenizer_json(&data, "llama2");
    let check = |pointer: &str, value: Value, want: &str| {
        let mut file: Value = serde_json::from_str(&file).unwrap();
        *file.pointer_mut(pointer).unwrap() = value;
        let error = Tokenizer::from_json(&file.to_string(), None).unwrap_err().to_string();
        assert!(error.contains(want), "{pointer}: {error}");
    };
    check("/model/type", json!("Unigram"), "tokenizer model `Unigram` is not supported; supported: BPE");
    check("/model/vocab", json!([["a", -1.0]]), "merge 0 (");
    check("/model/unk_token", json!("nope"), "unk_token names `nope`, which is not in the vocabulary");
    check("/model/dropout", json!(0.5), "dropout");
    check("/model/continuing_subword_prefix", json!("##"), "continuing_subword_prefix `##` is not supported");
    check("/normalizer", json!({"type": "BertNormalizer"}), "unknown variant `BertNormalizer`");
    check(
        "/normalizer",
        json!({"type": "Replace", "pattern": {"Regex": "a"}, "content": ""}),
        "a `Replace` normalizer",
    );
    check("/pre_tokenizer", json!({"type": "BertPreTokenizer"}), "unknown variant `BertPreTokenizer`");
    check("/pre_tokenizer", json!({"type": "ByteLevel"}), "a byte-level pre-tokenizer without the decoder");
    let split = json!({"type": "Split", "pattern": {"Regex": "[[:alpha:]]"}, "behavior": "Isolated", "invert": false});
    check("/pre_tokenizer", split, "the regular expression `[[:alpha:]]` (named classes in brackets) is not supported");
    check("/decoder", json!(null), "a tokenizer without a decoder");
    check("/added_tokens/0/id", json!(4_000_000_000u32), "has id 4000000000, the limit is");
    check("/added_tokens/0/id", json!(5), "both have id 5");
    check("/post_processor/single/0/SpecialToken/id", json!("<x>"), "post_processor names `<x>`");
    let bomb = json!({"type": "Sequence", "normalizers": vec![json!({"type": "Prepend", "prepend": "x"}); 9]});
    check("/normalizer", bomb, "normalizers that make text more than 64 times longer");
    let split = json!({"type": "Split", "pattern": {"Regex": "\\p{L}+"}, "behavior": "Isolated", "invert": false});
    let bomb = json!({"type": "Sequence", "pretokenizers": vec![split; 10_000]});
    check("/pre_tokenizer", bomb, "a sequence of more than 32 pre-tokenizers");
    let error = Tokenizer::from_json("{\"model\": ", None).unwrap_err().to_string();
    assert!(error.starts_with("tokenizer.json: EOF"), "{error}");
    let error = Tokenizer::from_json(&file, Some("[")).unwrap_err().to_string();
    assert!(error.starts_with("tokenizer_config.json: EOF"), "{error}");
}

/// The library's own complaint quotes the word in full, line breaks and all.
#[test]
fn a_long_word_in_tokenizer_json_is_shown_on_one_line_and_cut() {
    let kind = format!("a\n{}", "b".repeat(100_000));
    let file = json!({"model": {"type": "BPE"}, "normalizer": {"type": kind}});
    let error = Tokenizer::from_json(&file.to_string(), None).unwrap_err().to_string();
    assert!(!error.contains(char::is_control) && error.chars().count() < 400, "{error}");
}

/// Messages quote outside text; they must not grow with it.
#[test]
fn huge_tokens_are_quick_and_quoted_short() {
    let huge = "x".repeat(4 << 20);
    let file = |tokens: Vec<String>, merges: &[&str]| GgufVocabulary {
        model: "gpt2".into(),
        pre: Some("gpt-2".into()),
        tokens,
        merges: Some(strings(merges)),
        ..GgufVocabulary::default()
    };
    let tokenizer = Tokenizer::from_gguf(file(vec!["x".into(), huge.clone(), "y".into()], &[])).unwrap();
    assert_eq!(tokenizer.encode(&huge[..1000], Specials::Parse).unwrap().len(), 1000);
    let error = Tokenizer::from_gguf(file(vec!["x".into()], &[&format!("{huge} x")])).unwrap_err().to_string();
    assert!(error.len() < 1000, "{}", error.len());
    let error = tokenizer.encode(&"é".repeat(1 << 18), Specials::Parse).unwrap_err().to_string();
    assert!(error.len() < 1000 && error.contains("has no token in this vocabulary"), "{error}");

    // Control tokens have a limit, and text that almost has one again and again is no trouble.
    let control = |len: usize| {
        let mut control = file(vec!["x".into(), huge[..len].to_owned() + "y"], &[]);
        control.token_types = Some(vec![1, 3]);
        Tokenizer::from_gguf(control)
    };
    let error = control(1 << 20).unwrap_err().to_string();
    assert!(error.len() < 1000 && error.contains("has 1048577 bytes, the limit is 256"), "{error}");
    assert_eq!(control(250).unwrap().encode(&huge[..1 << 15], Specials::Parse).unwrap().len(), 1 << 15);
}

/// Long runs without a place to cut, where merging or backtracking could be quadratic.
#[test]
fn long_runs_take_linear_time() {
    for tokenizer in all() {
        for unit in [" ", "a", "\n", "the", "<", "é", "😀", " \n"] {
            let text = unit.repeat(50_000 / unit.len());
            if let Ok(ids) = tokenizer.encode(&text, Specials::AsText) {
                assert!(!ids.is_empty());
            }
        }
    }
}

#[test]
fn duplicate_tokens_are_found_by_their_last_id() {
    let tokenizer = Tokenizer::from_gguf(GgufVocabulary {
        model: "gpt2".into(),
        pre: Some("gpt-2".into()),
        tokens: strings(&["a", "b", "ab", "ab", "a"]),
        merges: Some(strings(&["a b", "a b"])),
        ..GgufVocabulary::default()
    })
    .unwrap();
    assert_eq!(tokenizer.encode("abb", Specials::Parse).unwrap(), [3, 1]);
    assert_eq!(tokenizer.decode(&[0, 2, 3, 4]), "aababa");
}
