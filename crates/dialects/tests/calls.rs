//! Answers of models, good, odd and broken, to events, however they are cut into pieces.
//!
//! `calls/DIALECT.txt` holds the answers. A line `==== title` begins one; after the title may come `; thinking` (the
//! prompt ends within `<think>`) and `length` (the limit was reached). The snapshots beside say what they mean.

mod common;

use std::collections::BTreeMap;

use common::{joined, read, tools};
use kapitsa_dialects::{Arguments, Dialect, End, Event, Reader};

struct Case<'a> {
    title: &'a str,
    text: &'a str,
    starts_in_reasoning: bool,
    end: End,
}

fn cases(file: &str) -> impl Iterator<Item = Case<'_>> {
    file.strip_prefix("==== ").unwrap().split("\n==== ").map(|case| {
        let (header, text) = case.split_once('\n').unwrap();
        let (title, options) = header.split_once("; ").unwrap_or((header, ""));
        let end = if options.contains("length") { End::Length } else { End::Stop };
        Case { title, text: text.trim_end_matches('\n'), starts_in_reasoning: options.contains("thinking"), end }
    })
}

/// One line for each event, with the arguments of a call in one piece.
fn shown(events: &[Event]) -> String {
    let lines = events.iter().map(|event| match event {
        Event::Reasoning(text) => format!("  reasoning {text:?}\n"),
        Event::Content(text) => format!("  content {text:?}\n"),
        Event::CallBegins { index, name } => format!("  call {index} {name}\n"),
        Event::CallArguments { json, .. } => format!("    {json}\n"),
        Event::CallEnds { .. } => "  end\n".to_string(),
    });
    lines.collect()
}

fn check(dialect: Dialect, file: &str) {
    let mut snapshot = String::new();
    for Case { title, text, starts_in_reasoning, end } in cases(file) {
        let read = |pieces: &[&str]| joined(read(dialect, &tools(), starts_in_reasoning, pieces, end));
        let whole = read(&[text]);
        for cut in (0..=text.len()).filter(|cut| text.is_char_boundary(*cut)) {
            assert_eq!(read(&[&text[..cut], &text[cut..]]), whole, "{title}: cut at {cut}");
        }
        let chars: Vec<String> = text.chars().map(String::from).collect();
        for size in [1, 2, 3, 7] {
            let pieces: Vec<String> = chars.chunks(size).map(|piece| piece.concat()).collect();
            let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
            assert_eq!(read(&pieces), whole, "{title}: pieces of {size}");
        }
        snapshot += &format!("{title}\n{}", shown(&whole));
    }
    insta::with_settings!({ snapshot_path => "calls", prepend_module_to_snapshot => false, omit_expression => true }, {
        insta::assert_snapshot!(format!("{dialect:?}"), snapshot);
    });
}

#[test]
fn hermes_json() {
    check(Dialect::HermesJson, include_str!("calls/hermes_json.txt"));
}

#[test]
fn qwen_xml() {
    check(Dialect::QwenXml, include_str!("calls/qwen_xml.txt"));
}

#[test]
fn nemotron_json() {
    check(Dialect::NemotronJson, include_str!("calls/nemotron_json.txt"));
}

#[test]
fn glm() {
    check(Dialect::Glm, include_str!("calls/glm.txt"));
}

#[test]
fn plain_json() {
    check(Dialect::PlainJson, include_str!("calls/plain_json.txt"));
}

#[test]
fn a_call_begins_with_its_name_and_text_streams() {
    for (dialect, text, arguments) in [
        (Dialect::HermesJson, "<tool_call>{\"name\": \"write\"", ""),
        (
            Dialect::HermesJson,
            "<tool_call>{\"name\": \"write\", \"arguments\": {\"content\": \"abc",
            "{\"content\": \"abc",
        ),
        (Dialect::PlainJson, "{\"name\": \"write\", \"parameters\": {\"content\": \"abc", "{\"content\": \"abc"),
        (Dialect::QwenXml, "<tool_call>\n<function=write>\n<parameter=content>\nabc", "{\"content\":\"abc"),
        (Dialect::Glm, "<tool_call>write<arg_key>content</arg_key><arg_value>abc", "{\"content\":\"abc"),
    ] {
        let mut events = vec![];
        Reader::new(dialect, &tools(), false).push(text, &mut events);
        let mut expected = vec![Event::CallBegins { index: 0, name: "write".into() }];
        if !arguments.is_empty() {
            expected.push(Event::CallArguments { index: 0, json: arguments.into() });
        }
        assert_eq!(events, expected, "{text}");
    }
}

#[test]
fn without_tools_everything_but_reasoning_is_content() {
    let text = "<think>a</think>\n<tool_call>{\"name\": \"ls\"}</tool_call>\n";
    for dialect in common::DIALECTS {
        let events = joined(read(dialect, &[], false, &[text], End::Stop));
        let content = "<tool_call>{\"name\": \"ls\"}</tool_call>\n";
        assert_eq!(events, [Event::Reasoning("a".into()), Event::Content(content.into())]);
    }
}

#[test]
fn dialects_are_known_by_their_templates() {
    for (template, expected) in [
        ("{{ '<tool_call>' }}<arg_key>", Some(Dialect::Glm)),
        ("<tool_call>\n<function=example_function_name>", Some(Dialect::QwenXml)),
        ("within <tool_call></tool_call> XML tags:\n{\"name\": <function-name>", Some(Dialect::HermesJson)),
        ("<AVAILABLE_TOOLS>{{ tools }}</AVAILABLE_TOOLS><TOOLCALL>[", Some(Dialect::NemotronJson)),
        ("{% if tools is not none %}", Some(Dialect::PlainJson)),
        ("{{ message.tool_calls }} {{ toolset }}", None),
    ] {
        assert_eq!(Dialect::detect(template), expected, "{template}");
    }
}

/// The call in the words of its dialect's form.
fn written(dialect: Dialect, name: &str, parameters: &[(&str, &str)]) -> String {
    let form = dialect.form();
    let arguments = match form.arguments {
        Arguments::Json => serde_json::to_string(&parameters.iter().copied().collect::<BTreeMap<_, _>>()).unwrap(),
        Arguments::Tagged { before_name, after_name, after_value } => {
            let one = |(name, value): &(&str, &str)| format!("{before_name}{name}{after_name}{value}{after_value}");
            parameters.iter().map(one).collect()
        }
    };
    [form.before_name, name, form.after_name, &arguments, form.after_arguments].concat()
}

#[test]
fn what_a_form_writes_is_read_as_that_call() {
    for dialect in common::DIALECTS {
        let form = dialect.form();
        assert!(form.triggers.first().is_none_or(|trigger| form.before_name.starts_with(trigger)), "{dialect:?}");
        let call = written(dialect, "write", &[("content", "a\n\"b\" <c>"), ("path", "x")]);
        let calls = form
            .between
            .map_or(call.clone(), |between| [call.as_str(), between, &written(dialect, "ls", &[])].concat());
        let events = joined(read(dialect, &tools(), false, &[&calls], End::Stop));
        let begins = events.iter().filter(|event| matches!(event, Event::CallBegins { .. })).count();
        let ends = events.iter().filter(|event| matches!(event, Event::CallEnds { .. })).count();
        let expected = 1 + usize::from(form.between.is_some());
        assert_eq!((begins, ends), (expected, expected), "{dialect:?}: {events:?}");
        let Event::CallArguments { json, .. } = &events[1] else { panic!("{dialect:?}: {events:?}") };
        let json: serde_json::Value = serde_json::from_str(json).unwrap();
        assert_eq!(json, serde_json::json!({ "content": "a\n\"b\" <c>", "path": "x" }), "{dialect:?}");
        assert!(!events.iter().any(|event| matches!(event, Event::Content(_))), "{dialect:?}: {events:?}");
    }
}
