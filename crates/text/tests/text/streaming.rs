//! Properties of the two stream parts: pieces of text join to the whole, and stop strings hold at any cut.

use crate::fixtures::all_tokenizers;
use kapitsa_text::{Detokenizer, Specials, StopMatcher};
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(100) })]

    /// Any ids, also such that no text would give: cut characters, control tokens, ids outside the vocabulary.
    #[test]
    fn pieces_join_to_the_decoded_whole(ids in prop::collection::vec(0u32..2000, 0..60), low in any::<bool>()) {
        for tokenizer in all() {
            // Low ids are bytes in all these vocabularies, where characters get cut.
            let ids: Vec<u32> = ids.iter().map(|&id| if low { id % 300 } else { id }).collect();
            let mut detokenizer = Detokenizer::new(tokenizer);
            let pieces: Vec<String> = ids.iter().map(|&id| detokenizer.push(id)).collect();
            let joined = pieces.concat() + &detokenizer.finish();
            prop_assert_eq!(&joined, &tokenizer.decode(&ids));
            let shown = ids.iter().filter(|&&id| !tokenizer.is_special(id));
            let bytes: Vec<u8> = shown.flat_map(|&id| tokenizer.token_bytes(id)).copied().collect();
            let whole = String::from_utf8_lossy(&bytes);
            prop_assert!(joined == whole || joined == whole[1..], "{joined:?} {whole:?}");
        }
    }

    #[test]
    fn text_comes_back_from_its_ids(text in "[ a-z\n.,0-9éß中文😀\u{301}]{0,40}") {
        for tokenizer in all() {
            for specials in [Specials::Parse, Specials::AsText] {
                // The two vocabularies without bytes for every character say so or hide what is unknown.
                let Ok(ids) = tokenizer.encode(&text, specials) else { continue };
                if ids.iter().any(|&id| tokenizer.is_special(id)) { continue }
                let back = tokenizer.decode(&ids);
                prop_assert!(same(&back, &text), "{back:?} {text:?} {tokenizer:?}");
            }
        }
    }

    #[test]
    fn stops_hold_at_any_cut(
        text in "[abβ😀]{0,30}",
        stops in prop::collection::vec("[abβ😀]{1,5}", 0..4),
        cuts in prop::collection::vec(0usize..40, 0..8),
    ) {
        let mut matcher = StopMatcher::new(&stops).unwrap();
        let (mut out, mut found, mut done) = (String::new(), None, 0);
        let mut cuts: Vec<usize> = cuts.into_iter().filter(|&cut| text.is_char_boundary(cut)).collect();
        cuts.push(text.len());
        cuts.sort_unstable();
        for cut in cuts {
            let step = matcher.push(&text[done..cut]);
            out.push_str(&step.text);
            done = cut;
            found = step.stop;
            if found.is_some() { break }
            // Nothing is held that cannot become a stop.
            let held = &text[out.len()..cut];
            prop_assert!(held.is_empty() || stops.iter().any(|stop| stop.starts_with(held)), "held {held:?}");
        }
        let first = (0..=text.len()).filter(|&end| text.is_char_boundary(end)).find_map(|end| {
            let complete = stops.iter().enumerate().filter(|(_, stop)| text[..end].ends_with(stop.as_str()));
            complete.max_by_key(|(index, stop)| (stop.len(), std::cmp::Reverse(*index))).map(|(index, stop)| (index, end - stop.len()))
        });
        match first {
            Some((index, start)) => {
                prop_assert_eq!(found, Some(index));
                prop_assert_eq!(&out, &text[..start]);
                prop_assert_eq!(matcher.finish(), "");
            }
            None => prop_assert_eq!(out + &matcher.finish(), text),
        }
    }
}

fn all() -> &'static [kapitsa_text::Tokenizer] {
    static ALL: std::sync::OnceLock<Vec<kapitsa_text::Tokenizer>> = std::sync::OnceLock::new();
    ALL.get_or_init(all_tokenizers)
}

/// Normalisers compose marks, and one of the tokenizers puts a space in front of every word.
fn same(a: &str, b: &str) -> bool {
    let plain = |text: &str| text.replace(' ', "");
    let (a, b) = (plain(a), plain(b));
    a == b || a.chars().count() < b.chars().count() && b.contains('\u{301}')
}

#[test]
fn half_a_character_is_never_shown() {
    let tokenizer = &all()[0];
    let id = |byte: u8| (0..300).find(|&id| tokenizer.token_bytes(id) == [byte]).unwrap();
    let mut detokenizer = Detokenizer::new(tokenizer);
    let mut push = |byte| detokenizer.push(id(byte));
    assert_eq!(["", "", "", "😀"], [push(0xf0), push(0x9f), push(0x98), push(0x80)].each_ref().map(String::as_str));
    // A start that cannot go on is shown at once, together with what follows.
    assert_eq!(["", "\u{fffd}a", "\u{fffd}"], [push(0xe4), push(b'a'), push(0xff)].each_ref().map(String::as_str));
    assert_eq!(["", "\u{fffd}"], [push(0xe4), push(0xe4)].each_ref().map(String::as_str));
    assert_eq!(detokenizer.finish(), "\u{fffd}");
    assert_eq!(detokenizer.finish(), "");
}

#[test]
fn an_arc_works_as_well_as_a_reference() {
    let tokenizer = std::sync::Arc::new(all()[0].clone());
    let mut detokenizer = Detokenizer::new(tokenizer);
    assert_eq!(detokenizer.push(u32::MAX), "");
}

#[test]
fn an_empty_stop_is_an_error() {
    let error = StopMatcher::new(["a", ""]).unwrap_err().to_string();
    assert!(error.starts_with("stop string 1 is empty"), "{error}");
}

/// The worst case for naive matching: a long text that keeps almost matching, one character at a time.
#[test]
fn stop_matching_is_linear() {
    let stop = "a".repeat(5000) + "b";
    let mut matcher = StopMatcher::new([stop]).unwrap();
    let mut out = 0;
    for _ in 0..200_000 {
        out += matcher.push("a").text.len();
    }
    assert_eq!(out, 200_000 - 5000);
    assert_eq!(matcher.push("b").stop, Some(0));
}
