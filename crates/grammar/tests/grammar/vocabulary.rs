//! What tokens mean to a mask.

use kapitsa_grammar::{Grammar, Vocabulary};
use kapitsa_text::{GgufVocabulary, Tokenizer};

use crate::common::{real_models, small_models};

/// Tokens of one letter and some special ones, with bytes as a fallback.
fn tokenizer() -> Tokenizer {
    let tokens = ["<unk>", "<s>", "</s>", "<|im_start|>", "a", "b", "<0x61>", "<tool>", "", "<", "/", "s", ">"];
    let gguf = GgufVocabulary {
        model: "llama".into(),
        tokens: tokens.iter().map(|token| (*token).to_owned()).collect(),
        scores: Some(vec![0.0; tokens.len()]),
        token_types: Some(vec![2, 3, 3, 3, 1, 1, 6, 4, 5, 1, 1, 1, 1]),
        unknown: Some(0),
        bos: Some(1),
        eos: Some(2),
        ..GgufVocabulary::default()
    };
    Tokenizer::from_gguf(gguf).unwrap()
}

fn first(vocabulary: &Vocabulary, grammar: &Grammar) -> (Vec<u32>, bool) {
    let mask = vocabulary.compile(grammar).unwrap().matcher().mask().unwrap();
    (mask.tokens().collect(), mask.may_end())
}

#[test]
fn text_never_becomes_a_control_token_and_equal_bytes_come_together() {
    let vocabulary = Vocabulary::new(&tokenizer()).unwrap();
    assert_eq!((vocabulary.len(), vocabulary.is_empty()), (13, false));
    let text = Grammar::text_without(&[]);
    assert_eq!(first(&vocabulary, &text), (vec![4, 5, 6, 7, 9, 10, 11, 12], true));
    // Its characters, but not the token.
    assert_eq!(first(&vocabulary, &Grammar::literal("</s>")), (vec![9], false));
    // A token that the template writes is still text for the model.
    assert_eq!(first(&vocabulary, &Grammar::literal("<tool>")), (vec![7, 9], false));
    assert_eq!(first(&vocabulary, &Grammar::literal("a")), (vec![4, 6], false));
    assert_eq!(first(&vocabulary, &Grammar::literal("<|im_start|>")), (vec![9], false));
}

#[test]
fn what_no_token_can_write_ends_the_reply_with_an_error() {
    let vocabulary = Vocabulary::new(&tokenizer()).unwrap();
    let mut matcher = vocabulary.compile(&Grammar::literal("ax")).unwrap().matcher();
    matcher.accept(4).unwrap();
    let error = matcher.mask().unwrap_err().to_string();
    assert_eq!(error, "the reply cannot follow its grammar: no token of the vocabulary can go on with the text");
}

#[test]
fn masks_have_a_bit_for_each_token() {
    let vocabulary = Vocabulary::new(&tokenizer()).unwrap();
    let mask = vocabulary.compile(&Grammar::literal("b")).unwrap().matcher().mask().unwrap();
    assert_eq!(mask.words(), [1 << 5]);
    assert!(mask.allows(5) && !mask.allows(4) && !mask.allows(13) && !mask.allows(u32::MAX));
}

#[test]
fn ends_of_a_turn_are_in_no_mask() {
    for model in small_models().into_iter().chain(real_models()) {
        let text = model.compile(&Grammar::text_without(&[])).unwrap().matcher().mask().unwrap();
        assert!(text.may_end() && text.tokens().count() > 100, "{}", model.name);
        for id in 0..model.tokenizer.vocab_len() as u32 {
            let is_end = model.tokenizer.is_special(id) || model.tokenizer.eos_ids().contains(&id);
            assert!(!(is_end && text.allows(id)), "{}: {}", model.name, model.tokenizer.token_text(id));
        }
    }
}

#[test]
fn clones_go_their_own_way_and_tokens_that_are_not_allowed_are_refused() {
    let vocabulary = Vocabulary::new(&tokenizer()).unwrap();
    let compiled = vocabulary.compile(&Grammar::choice([Grammar::literal("ab"), Grammar::literal("ba")])).unwrap();
    let mut one = compiled.matcher();
    one.accept(4).unwrap();
    let mut two = one.clone();
    assert!(two.accept(4).is_err());
    one.accept(5).unwrap();
    assert!(one.is_complete());
    let mask = one.mask().unwrap();
    assert!(mask.may_end() && mask.tokens().next().is_none());
    assert!(one.accept(4).is_err());
    let mut three = compiled.matcher();
    [5, 6].into_iter().for_each(|id| three.accept(id).unwrap());
    assert!(three.is_complete());
}

#[test]
fn everything_may_go_to_another_thread() {
    fn check<T: Send + Sync + 'static>() {}
    check::<Vocabulary>();
    check::<Grammar>();
    check::<kapitsa_grammar::CompiledGrammar>();
    check::<kapitsa_grammar::Matcher>();
}
