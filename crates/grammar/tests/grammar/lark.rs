//! Grammars in Lark's syntax that clients send.

use kapitsa_grammar::Grammar;
use proptest::prelude::*;

use crate::common::{Model, real_models, small_models};

fn refusal(lark: &str) -> String {
    Grammar::lark(lark).expect_err(lark).to_string()
}

#[test]
fn no_grammar_allows_a_control_token() {
    for (lark, message) in [
        ("start: \"a\"\n  | <|im_end|>", "grammar: line 2: `<|im_end|>` is a control token, no text"),
        ("start: \"a\" <[3]>", "grammar: line 1: `<[3]>` is a control token, no text"),
        ("start: %lark { start: <[*]> }", "grammar: line 1: `<[*]>` is a control token, no text"),
        ("start: @part0", "grammar: line 1: there is no other grammar `@part0`"),
        (
            "start: X\nX: ~\"a\"",
            "grammar: line 2: `~` is supported only after `&`: what is not a text need not be a text",
        ),
        (
            "X: /a/ & (/b/) | ~/c/\nstart: X",
            "grammar: line 1: `~` is supported only after `&`: what is not a text need not be a text",
        ),
        (
            "X: /a/ & /b/\nY: (~X)",
            "grammar: line 2: `~` is supported only after `&`: what is not a text need not be a text",
        ),
        (
            "%llguidance {\"allow_invalid_\\u0075tf8\": true}\nstart: /(?s-u:.)*/",
            "grammar: line 1: text that is no UTF-8 is not supported",
        ),
    ] {
        assert_eq!(refusal(lark), message);
    }
    for model in small_models().into_iter().take(1).chain(real_models()) {
        for lark in [
            "start: X\nX: /(?s:.*)/ & ~\"a\"",
            "start: X\nX: /(?s:.{0,3})/ & ( ~/a/ | /b/ & ~/c/ )",
            "start: \"<|im_end|>\" ~ 2 | \"<[1]>\" | /<\\[1]>/ // <|im_end|>\n  | \"@a\" # @a",
            "start: %json {\"type\": \"string\", \"description\": \"<|im_end|> @a\"}",
        ] {
            let mut matcher = model.compile(&Grammar::lark(lark).unwrap()).unwrap().matcher();
            let mask = matcher.mask().unwrap();
            let is_special = |&id: &u32| model.tokenizer.is_special(id) || model.tokenizer.eos_ids().contains(&id);
            assert!(mask.tokens().next().is_some() && mask.tokens().find(is_special).is_none(), "{lark}");
        }
        for lark in ["start: /(?-u:\\xff)/", "start: /(?s-u:.)*/"] {
            assert!(model.compile(&Grammar::lark(lark).unwrap()).is_err(), "{lark}");
        }
    }
}

#[test]
fn words_that_lark_does_not_have_are_refused_with_their_line() {
    for (lark, message) in [
        ("start: \"a\n\"", "grammar: line 1: a string has no end, or no such escape"),
        ("\n\nstart: \"\\q\"", "grammar: line 3: a string has no end, or no such escape"),
        ("start: /a", "grammar: line 1: a regular expression has no end"),
        ("start: a ; b", "grammar: line 1: unexpected `; b`"),
        ("start: < a>", "grammar: line 1: unexpected `< a>`"),
        ("start: %json {", "grammar: line 1: there is no JSON after `%json`"),
        ("%include a", "grammar: line 1: unexpected `%include a`"),
    ] {
        assert_eq!(refusal(lark), message);
    }
    assert_eq!(refusal(&" ".repeat(65_537)), "grammar: it has 65537 bytes, the limit is 65536");
}

/// Text with many of the signs of the syntax.
fn soup() -> impl Strategy<Value = String> {
    let parts = [
        "start",
        ":",
        "x: ",
        "A: ",
        "\n",
        "|",
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        "\"a\"",
        "\"",
        "\\",
        "/",
        "/b+/",
        "//",
        "#",
        "~",
        "&",
        "2",
        "..",
        "%import common.LF",
        "%json",
        "%ignore ",
        "->",
        "?",
        "!",
        "_",
        "<",
        ">",
        "@",
        "é",
        "+",
        "*",
        "::",
        "\r",
        "-",
    ];
    prop::collection::vec(
        prop_oneof![4 => prop::sample::select(parts.to_vec()).prop_map(String::from), 1 => ".{0,3}"],
        0..20,
    )
    .prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]
    #[test]
    fn whatever_a_grammar_holds_the_worst_is_an_error(lark in soup()) {
        thread_local! { static MODEL: Model = small_models().remove(0); }
        for grammar in [Grammar::lark(&lark), Grammar::lark_in_json_string(&lark)].into_iter().flatten() {
            let _ = MODEL.with(|model| model.compile(&grammar).map(drop));
        }
    }
}
