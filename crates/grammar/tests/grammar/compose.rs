//! Grammars put together as tool calls need them.

use kapitsa_grammar::Grammar;
use proptest::prelude::*;
use serde_json::json;

use crate::common::{real_models, small_models};

fn call(name: &str, arguments: Grammar) -> Grammar {
    let head = format!("<tool_call>\n{{\"name\": \"{name}\", \"arguments\": ");
    Grammar::concat([Grammar::literal(&head), arguments, Grammar::literal("}\n</tool_call>")])
}

fn arguments() -> Grammar {
    let path = json!({"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"], "additionalProperties": false});
    Grammar::json_schema(&path).unwrap()
}

#[test]
fn one_of_several_tools_with_its_own_arguments() {
    let tools = Grammar::choice([call("ls", arguments()), call("list_all", Grammar::any_json_object())]);
    for model in small_models().into_iter().take(1).chain(real_models()) {
        let accepts = |text: &str| model.accepts(&tools, text);
        assert!(accepts(
            "<tool_call>\n{\"name\": \"ls\", \"arguments\": {\"path\": \"</tool_call> é\"}}\n</tool_call>"
        ));
        assert!(accepts("<tool_call>\n{\"name\": \"list_all\", \"arguments\": {\"x\": [1, {}]}}\n</tool_call>"));
        assert!(!accepts("<tool_call>\n{\"name\": \"ls\", \"arguments\": {}}\n</tool_call>"));
        assert!(!accepts("<tool_call>\n{\"name\": \"rm\", \"arguments\": {}}\n</tool_call>"));
        assert!(!accepts("Let me see. <tool_call>"));
    }
}

#[test]
fn free_text_with_calls_in_it() {
    let body = Grammar::concat([Grammar::literal("{\"arguments\": "), arguments(), Grammar::literal("}</tool_call>")]);
    let grammar = Grammar::text_with_calls([("<tool_call>".to_owned(), body)]);
    for model in small_models().into_iter().take(1).chain(real_models()) {
        let accepts = |text: &str| model.accepts(&grammar, text);
        let call = "<tool_call>{\"arguments\": {\"path\": \"a\"}}</tool_call>";
        assert!(accepts("") && accepts("Just text, a < b.\n") && accepts("a <tool_call or so"));
        assert!(accepts(call) && accepts(&format!("First {call}\n{call} and done.")));
        assert!(!accepts("a <tool_call>") && !accepts("<tool_call>{}") && !accepts(&format!("{call}<tool_call>no")));
    }
}

#[test]
fn several_triggers_each_with_its_own_body() {
    let body = |text: &str| Grammar::concat([Grammar::literal(text), Grammar::literal(";")]);
    let calls = |pairs: &[(&str, &str)]| {
        Grammar::text_with_calls(pairs.iter().map(|(trigger, text)| ((*trigger).to_owned(), body(text))))
    };
    for model in small_models().into_iter().take(1).chain(real_models()) {
        let check = |grammar: &Grammar, good: &[&str], bad: &[&str]| {
            good.iter().for_each(|text| assert!(model.accepts(grammar, text), "{}: {text}", model.name));
            bad.iter().for_each(|text| assert!(!model.accepts(grammar, text), "{}: {text}", model.name));
        };
        let two = calls(&[("<f=ls>", "1"), ("<f=rm>", "2")]);
        check(
            &two,
            &["", "a <f= b", "<f=ls>1;", "<f=rm>2;", "a <f=<f=rm>2;<f=ls>1; and <f=ls>1;é", "<f=ls>1;<f=ls>1;"],
            &["<f=ls>2;", "<f=rm>1;", "<f=rm><f=ls>1;", "a <f=ls> b <f=rm>2;", "<f=ls>1;<f=rm>", "<f=ls>"],
        );
        // The first to end counts, also where one is the beginning, the middle or the end of the other.
        let overlapping = calls(&[("ab", "1"), ("xabc", "2"), ("aba", "3")]);
        check(&overlapping, &["xab1;", "xaab1;xa"], &["xabc2;", "aba3;", "ab"]);
        let same_end = calls(&[("b", "1"), ("ab", "2"), ("ab", "3")]);
        check(&same_end, &["b1;", "ab1;", "ab2;xab3;"], &["xb2;", "ab"]);
        check(&calls(&[]), &["", "any"], &[]);
        check(&calls(&[("", "1"), ("a", "2")]), &["1;", "xa2;"], &["a1;"]);
    }
}

/// Whether a text is free text with calls, where the body after trigger `i` is the digit `i`.
fn is_text_with_calls(triggers: &[String], text: &str) -> bool {
    let found = (1..=text.len()).find(|&end| triggers.iter().any(|trigger| text[..end].ends_with(trigger.as_str())));
    found.is_none_or(|end| {
        (0..triggers.len()).any(|index| {
            let rest = text[end..].strip_prefix(&index.to_string());
            text[..end].ends_with(&triggers[index]) && rest.is_some_and(|rest| is_text_with_calls(triggers, rest))
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn whichever_trigger_ends_first_counts(
        triggers in prop::collection::vec("[ab]{1,3}", 1..4),
        parts in prop::collection::vec(prop::sample::select(vec!["a", "b", "ab", "0", "1", "2"]), 0..10),
    ) {
        thread_local! { static MODEL: crate::common::Model = small_models().remove(0); }
        let text = parts.concat();
        let bodies = (0..triggers.len()).map(|index| Grammar::literal(&index.to_string()));
        let grammar = Grammar::text_with_calls(triggers.iter().cloned().zip(bodies));
        let accepted = MODEL.with(|model| model.accepts(&grammar, &text));
        prop_assert_eq!(accepted, is_text_with_calls(&triggers, &text), "{}", text);
    }
}

#[test]
fn thinking_then_a_call() {
    let grammar = Grammar::concat([Grammar::text_until("</think>"), Grammar::literal("\n\n"), call("ls", arguments())]);
    let model = &small_models()[0];
    let call = "<tool_call>\n{\"name\": \"ls\", \"arguments\": {\"path\": \"a\"}}\n</tool_call>";
    assert!(model.accepts(&grammar, &format!("Should I <tool_call>? Yes.</think>\n\n{call}")));
    assert!(!model.accepts(&grammar, "Hm.</think>\n\nNo."));
    assert!(!model.accepts(&grammar, "Hm."));
}

#[test]
fn parts_repeat_and_may_be_left_out() {
    let model = &small_models()[0];
    let check = |grammar: &Grammar, good: &[&str], bad: &[&str]| {
        good.iter().for_each(|text| assert!(model.accepts(grammar, text), "{text}"));
        bad.iter().for_each(|text| assert!(!model.accepts(grammar, text), "{text}"));
    };
    let word = || Grammar::regex("[a-c]+;").unwrap();
    check(&word().repeat(2, Some(3)), &["a;b;", "a;b;c;"], &["a;", "a;a;a;a;"]);
    check(&word().repeat(1, None), &["a;", "ab;b;c;a;"], &[""]);
    check(&word().optional(), &["", "a;"], &["a;a;"]);
    check(&Grammar::concat([]), &[""], &["a"]);
    check(&Grammar::regex("").unwrap(), &[""], &["a"]);
    check(&Grammar::regex("/a\n|\\d").unwrap(), &["/a\n", "7"], &["a"]);
    check(&Grammar::literal("\"\\\u{7f}\u{1}é/i"), &["\"\\\u{7f}\u{1}é/i"], &["é"]);
    check(&Grammar::text_without(&["ab", "c"]), &["", "aab".split_at(1).0, "ba"], &["xaby", "c"]);
    check(&Grammar::lark("start: \"a\" x\nx: \"b\" | \"(\" x \")\"").unwrap(), &["ab", "a((b))"], &["a((b)"]);
    let two = ["start: \"x\"", "start: \"y\""].map(|lark| Grammar::lark(lark).unwrap());
    check(&Grammar::concat(two), &["xy"], &["x", "yx"]);
}
