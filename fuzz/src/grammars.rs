//! What clients ask answers to look like.

use std::sync::LazyLock;

use kapitsa_grammar::{Grammar, GrammarError, Tags, Vocabulary};
use kapitsa_text::{GgufVocabulary, Tokenizer};

static VOCABULARY: LazyLock<Vocabulary> = LazyLock::new(|| {
    let tokens: Vec<String> = kapitsa_testkit::tiny::vocabulary();
    let vocabulary = GgufVocabulary {
        model: "gpt2".into(),
        pre: Some("gpt-2".into()),
        token_types: Some(vec![1; tokens.len()]),
        merges: Some(vec!["t h".into()]),
        tokens,
        ..GgufVocabulary::default()
    };
    Vocabulary::new(&Tokenizer::from_gguf(vocabulary).expect("a vocabulary of bytes")).expect("a small vocabulary")
});

const TAGS: Tags = Tags { before_name: "<parameter=", after_name: ">\n", after_value: "\n</parameter>\n" };

/// Makes a grammar of the input and follows it for some tokens.
pub fn grammar(data: &[u8]) {
    let [kind, text @ ..] = data else { return };
    let Ok(text) = std::str::from_utf8(text) else { return };
    let Ok(grammar) = read(*kind, text) else { return };
    let Ok(compiled) = VOCABULARY.compile(&grammar) else { return };
    let mut matcher = compiled.matcher();
    for step in 0..20 {
        let Ok(mask) = matcher.mask() else { return };
        let count = mask.tokens().count();
        let Some(token) = mask.tokens().nth((usize::from(*kind) * 7 + step * 31) % count.max(1)) else {
            assert!(mask.may_end(), "nothing may come, nor the end");
            return;
        };
        matcher.accept(token).expect("the mask allows it");
    }
}

fn read(kind: u8, text: &str) -> Result<Grammar, GrammarError> {
    let schema = || serde_json::from_str(text).unwrap_or_default();
    match kind % 5 {
        0 => Grammar::json_schema(&schema()),
        1 => Grammar::tagged_object(&schema(), &TAGS),
        2 => Grammar::regex(text),
        3 => Grammar::lark(text),
        _ => Grammar::lark_in_json_string(text),
    }
}
