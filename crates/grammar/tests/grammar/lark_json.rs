//! Grammars in Lark's syntax within JSON strings.

use kapitsa_grammar::Grammar;
use proptest::prelude::*;

use crate::common::{Model, real_models, small_models, walk_by};

/// As a coding agent sends one for patches.
const PATCH: &str = r#"
start: begin hunk+ end
begin: "*** Begin Patch" LF
end: "*** End Patch" LF?

hunk: add | delete | update // one file
add: "*** Add File: " filename LF add_line+
delete: "*** Delete File: " filename LF
update: "*** Update File: " filename LF move? change?
move: "*** Move to: " filename LF
change: (context | line)+ eof?
context: ("@@" | "@@ " /(.+)/) LF
line: ("+" | "-" | " ") /(.*)/ LF
add_line: "+" /(.*)/ LF -> line
eof: "*** End of File" LF
filename: /(.+)/

%import common.LF
"#;

fn in_json(text: &str) -> String {
    let json = serde_json::to_string(text).unwrap();
    json[1..json.len() - 1].to_owned()
}

fn refusal(lark: &str) -> String {
    Grammar::lark_in_json_string(lark).expect_err(lark).to_string()
}

/// Both grammars judge the text, and what stands for it, alike.
fn assert_alike(model: &Model, lark: &str, text: &str) -> bool {
    let plain = model.accepts(&Grammar::lark(lark).unwrap(), text);
    let grammar = Grammar::lark_in_json_string(lark).unwrap_or_else(|error| panic!("{error}: {lark}"));
    assert_eq!(model.accepts(&grammar, &in_json(text)), plain, "{text:?} by {lark}");
    plain
}

fn check(lark: &str, good: &[&str], bad: &[&str]) {
    let model = &small_models()[0];
    good.iter().for_each(|text| assert!(assert_alike(model, lark, text), "{text:?} by {lark}"));
    bad.iter().for_each(|text| assert!(!assert_alike(model, lark, text), "{text:?} by {lark}"));
}

#[test]
fn patches() {
    let update = "*** Begin Patch\n*** Update File: src/a \"b\".rs\n*** Move to: c\\d\n@@ fn main() {\n-\tlet a = \"\\n\";\n+\n é\u{7f}\n*** End Patch\n";
    let add = "*** Begin Patch\n*** Add File: a\n+*** End Patch\n+\n*** Delete File: b\n*** End Patch";
    let eof = "*** Begin Patch\n*** Update File: a\n@@\n+a\n*** End of File\n*** End Patch\n";
    let bad = [
        "*** Begin Patch\n*** End Patch\n",
        "*** Begin Patch\n*** Update File: \n*** End Patch\n",
        "*** Begin Patch\n*** Add File: a\n-b\n*** End Patch\n",
        "*** Begin Patch\n*** Delete File: b\n",
    ];
    check(PATCH, &[update, add, eof], &bad);
    for model in real_models() {
        assert!(assert_alike(&model, PATCH, update) && !assert_alike(&model, PATCH, bad[0]));
    }
    // Only one way to write a character.
    let grammar = Grammar::lark_in_json_string(PATCH).unwrap();
    let model = &small_models()[0];
    for text in [add, update] {
        assert!(!model.accepts(&grammar, text) && !model.accepts(&grammar, &in_json(text).replace("\\n", "\\u000a")));
    }
    assert!(!model.accepts(&grammar, &in_json(add).replace("+\\n", "+/\\/\\n")));
}

#[test]
fn whatever_is_written_is_a_text_of_the_grammar() {
    for model in small_models().into_iter().take(1).chain(real_models()) {
        let (plain, grammar) = (Grammar::lark(PATCH).unwrap(), Grammar::lark_in_json_string(PATCH).unwrap());
        let compiled = model.compile(&grammar).unwrap();
        for seed in 0..20 {
            let rank = |bytes: &[u8]| {
                let text = String::from_utf8_lossy(bytes).replace("\\\\", "__");
                let line = text.rsplit("\\n").next().unwrap_or_default();
                // Ends the line, and where one begins the whole.
                let wanted: &'static [u8] = match b"*** End Patch".strip_prefix(line.as_bytes()) {
                    _ if line.ends_with('\\') => b"n",
                    Some(rest) if !rest.is_empty() => rest,
                    _ => b"\\n",
                };
                move |token: &[u8]| usize::from(!wanted.starts_with(token))
            };
            let written = walk_by(&model, &compiled, 60, &mut fastrand::Rng::with_seed(seed), rank);
            let text: String = serde_json::from_str(&format!("\"{written}\"")).unwrap();
            assert_eq!(in_json(&text), written);
            assert!(model.accepts(&plain, &text), "{text:?}");
        }
    }
}

#[test]
fn terminals_of_every_kind() {
    check("start: \"a\\n\\\"\\\\\\t\\u00e9\\x41\"", &["a\n\"\\\té\u{41}"], &["a"]);
    check("start: \"a\\n\"i \"b\"", &["a\nb", "A\nb"], &["a\nB"]);
    check("start: \"\\n\"..\"$\"+", &["\n", "\"#\r $"], &["", "%"]);
    check("start: /a.c/ /a.c/s /x y/x /^q$/i", &["a\"ca\ncxyQ"], &["a\nca\ncxyQ"]);
    check("start: /[^\"]+/ \"\\\"\"", &["\\\n\t\"", "a\""], &["\"\""]);
    check("start: A B\nA: \"\\\"\"* (\"a\" | \"\\n\"~2) \"b\"?\nB: (A & /.*/)+", &["\"\n\na", "aab"], &["a\n\n", "a"]);
    check("start: A?\nA: /(?P<x>\"|\\\\)*/", &["", "\"\\\""], &["a"]);
    check("start: [\"a\"] \"b\"{2} \"c\"{,2} \"\\n\"{1,} \"d\"~1..2", &["bb\nd", "abbcc\n\ndd"], &["bbd", "bb\nddd"]);
    check("start: /a{0}[\"]{0,2}$/ | \"\" | ", &["", "\"", "\"\""], &["a", "\"\"\""]);
    check(
        "start: _x !y?\n_x: \"1\" | _x \"\\n1\"\n!y: \"\\n2\"".replace("!y?", "y?").as_str(),
        &["1\n1\n2", "1"],
        &["\n2"],
    );
}

#[test]
fn the_library_and_what_is_ignored() {
    check(
        "start: NUMBER (\",\" N)* EOL?\n%import common (NUMBER, WS)\n%import common.INT -> N\n%import common.LF -> EOL\n%ignore WS",
        &["1.5", "1,2", "1 ,\n\t2\n", "1\n\n,2"],
        &["", "a", "1 2"],
    );
    let lark = "start: \"a\" \"a\"? \"a\"? \";\"\n%ignore /[ \"]/\n%ignore \"\\n\" | \"b\"";
    check(lark, &["a;", "a\" a;", "a\n\"baa;", "a \n;"], &["", "ca;", " a;", "a; "]);
    let names = [
        ("DIGIT", "7", "a"),
        ("HEXDIGIT", "f", "g"),
        ("INT", "70", "-7"),
        ("SIGNED_INT", "-7", "-"),
        ("DECIMAL", "1.", "1"),
        ("_EXP", "e-1", "1"),
        ("FLOAT", "1e5", "1"),
        ("SIGNED_FLOAT", "+.5", "1"),
        ("NUMBER", "1.5e3", "."),
        ("SIGNED_NUMBER", "-1", "--1"),
        ("ESCAPED_STRING", "\"a\\\"\"", "\"a"),
        ("LCASE_LETTER", "a", "A"),
        ("UCASE_LETTER", "A", "a"),
        ("LETTER", "A", "1"),
        ("WORD", "aB", "a1"),
        ("CNAME", "_a1", "1a"),
        ("WS_INLINE", "\t ", "\n"),
        ("WS", "\r\n", "a"),
        ("CR", "\r", "\n"),
        ("LF", "\n", "\r"),
        ("NEWLINE", "\r\n\n", "\r"),
        ("SH_COMMENT", "#a\"", "#\n"),
        ("CPP_COMMENT", "//", "/"),
        ("C_COMMENT", "/* \n* */", "/* "),
        ("SQL_COMMENT", "-- x", "-"),
    ];
    for (name, good, bad) in names {
        check(&format!("start: {name}\n%import common.{name}"), &[good], &[bad]);
    }
}

#[test]
fn what_cannot_be_written_is_refused_with_its_line() {
    for (lark, message) in [
        ("start: \"a\"\n  | ~\"b\"", "line 2: `~` cannot be written in a JSON string"),
        ("start: %json {\"type\": \"string\"}", "line 1: `%json` cannot be written in a JSON string"),
        ("start: %regex {\"substring_chars\": \"ab\"}", "line 1: `%regex` cannot be written in a JSON string"),
        (
            "%llguidance {\"no_forcing\": true}\nstart: \"a\"",
            "line 1: `%llguidance` cannot be written in a JSON string",
        ),
        ("start: <|im_end|>", "line 1: `<|im_end|>` cannot be written in a JSON string"),
        ("start: @other", "line 1: `@other` cannot be written in a JSON string"),
        ("\nstart[suffix=\"a\"]: /.*/", "line 2: attributes of a rule cannot be written in a JSON string"),
        ("start: a::1\na::_: \"a\"", "line 1: a rule with a parameter cannot be written in a JSON string"),
        ("start: \"a\" %if true", "line 1: found `%if`, expected the end of the line"),
        ("start: a{b}", "line 1: a template cannot be written in a JSON string"),
        ("start: A\nA.2: \"a\"", "line 2: a priority cannot be written in a JSON string"),
        ("%declare A", "line 1: `%declare` cannot be written in a JSON string"),
        ("start: \"a\" & \"b\"", "line 1: `&` is supported only in terminals"),
        ("start: /[a-/", "line 1: regular expression `[a-`: unclosed character class"),
        ("start: /a/l", "line 1: regular expression `a`: unrecognized flag"),
        (
            "start: /a\\b/",
            "line 1: regular expression `a\\b`: look-around is supported only as `^` at its beginning and `$` at its end",
        ),
        ("start: /(?P<stop>a)/", "a group `stop` cannot be written in a JSON string"),
        ("start: \"\\u0001\"", "the control character U+0001 cannot be written in a JSON string"),
        ("start: nothing", "line 1: there is no terminal `nothing`"),
        ("start: A\nA: B\nB: \"b\" A", "line 3: `A` leads to itself, or too far"),
        ("a: \"a\"", "there is no rule `start`"),
        ("start: \"a\" start", "no text fits it"),
        ("start: \"a\"\nstart: \"b\"", "line 2: `start` is defined twice"),
        ("start: LF\n%import common.LFF", "line 2: there is no `common.LFF` to import"),
        ("start: \"b\"..\"a\"", "line 1: a range goes from one character to a later one"),
        ("start: \"a\"..", "line 1: a range goes from one string to another"),
        ("start: (\"a\"", "line 1: found the end, expected `)`"),
        ("start: \"a\")", "line 1: found `)`, expected the end of the line"),
        ("start: \"a\"{0}", "line 1: a repetition must be possible at least once"),
        ("start: \"a\"{1001}", "line 1: rules repeat at most 1000 times, or without a limit"),
    ] {
        assert_eq!(refusal(lark), format!("grammar: {message}"), "{lark}");
    }
}

#[test]
fn large_grammars_are_refused_with_the_limit() {
    let groups = format!("start: {}\"a\"{}", "(".repeat(40), ")".repeat(40));
    assert_eq!(refusal(&groups), "grammar: line 1: more than 28 groups within groups");
    let doubled: String = (0..40).map(|at| format!("A{at}: A{0} A{0}\n", at + 1)).collect();
    let grammar = Grammar::lark_in_json_string(&format!("start: A0\n{doubled}A40: \"a\"")).unwrap();
    let _ = small_models()[0].compile(&grammar);
    let many = format!("start: {}", "/a*/ ".repeat(10_000));
    let _ = Grammar::lark_in_json_string(&many);
    let terminal = format!("start: A\nA: {}", "/\"*/ ".repeat(9_000));
    assert_eq!(refusal(&terminal), "grammar: written out it is larger than 4194304 bytes");
    let inner = format!("start: /{}/", "\"*".repeat(30_000));
    assert_eq!(refusal(&inner), "grammar: written out it is larger than 4194304 bytes");
    let rules = format!("start: {}", "\"a\"{1000} ".repeat(50));
    assert_eq!(refusal(&rules), "grammar: its rules have more than 20000 parts");
    assert_eq!(refusal(&" ".repeat(65_537)), "grammar: it has 65537 bytes, the limit is 65536");
}

#[test]
fn what_is_ignored_hides_no_terminal() {
    let lark = "start: \"\\n\" A B\nA: \"\\\"\"\nB: /\\n[^\\n]/\n%ignore \"\\\"\"";
    let model = &small_models()[0];
    assert!(model.accepts(&Grammar::lark_in_json_string(lark).unwrap(), &in_json("\n\"\n\\")));
}

/// A terminal, by texts of few characters.
fn terminal() -> impl Strategy<Value = String> {
    let leaf = prop::sample::select(vec![
        "\"a\"",
        "\"b\\n\"",
        "\"\\n\"",
        "\"\\\"\"",
        "\"\\\\\"",
        "/./",
        "/[^\\n]/",
        "/[^a]+/",
        "/(.*)/",
        "/[\"\\n]/",
        "/a|\\n\"/",
        "/b*\"?/",
    ]);
    leaf.prop_map(String::from).prop_recursive(2, 8, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 1..4).prop_map(|parts| format!("( {} )", parts.join(" "))),
            prop::collection::vec(inner.clone(), 2..4).prop_map(|parts| format!("( {} )", parts.join(" | "))),
            (inner.clone(), inner.clone()).prop_map(|(one, other)| format!("( {one} & {other} )")),
            (inner, prop::sample::select(vec!["?", "*", "+", "{2}", "{0,2}"]))
                .prop_map(|(of, many)| format!("( {of} ){many}")),
        ]
    })
}

/// The body of a rule that names the terminals `A` and `B`; and the same with what is ignored written out, as `IGNORED` after each
/// terminal.
fn rule() -> impl Strategy<Value = [String; 2]> {
    let leaf = prop::sample::select(vec!["A", "B", "\"a\"", "\"\\n\"", "/[^\\n]*/", "\"\""]);
    let both = |leaf: &str| [leaf.to_owned(), format!("( {leaf} IGNORED* )")];
    let joined = |parts: Vec<[String; 2]>, by: &str| {
        [0, 1]
            .map(|which| format!("( {} )", parts.iter().map(|part| part[which].as_str()).collect::<Vec<_>>().join(by)))
    };
    leaf.prop_map(both).prop_recursive(3, 10, 3, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 1..4).prop_map(move |parts| joined(parts, " ")),
            prop::collection::vec(inner.clone(), 2..4).prop_map(move |parts| joined(parts, " | ")),
            (inner, prop::sample::select(vec!["?", "*", "+", "~2", "{1,2}"]))
                .prop_map(|(of, many)| of.map(|of| format!("( {of} ) {many}"))),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, max_shrink_iters: 200, ..ProptestConfig::default() })]
    #[test]
    fn texts_and_what_stands_for_them_are_judged_alike(
        a in terminal(),
        b in terminal(),
        [rule, written_out] in rule(),
        ignored: bool,
        texts in prop::collection::vec("[ab\n\"\\\\]{0,8}", 4),
    ) {
        thread_local! { static MODEL: Model = small_models().remove(0); }
        let ignored = if ignored { "%ignore \"\\\"\"\n" } else { "" };
        let lark = format!("start: {rule}\nA: {a}\nB: {b}\n{ignored}");
        MODEL.with(|model| {
            // Not all of them have a text.
            if let Ok(grammar) = Grammar::lark(&lark) && model.compile(&grammar).is_ok() {
                for text in texts {
                    if ignored.is_empty() {
                        assert_alike(model, &lark, &text);
                    } else {
                        // What is ignored may follow the last terminal if another could come; it is not written there. The judge
                        // has it as a terminal: where a text fits both, `%ignore` hides the other from llguidance.
                        let judge = format!("start: IGNORED* {written_out}\nIGNORED: \"\\\"\"\nA: {a}\nB: {b}\n");
                        let judge = Grammar::lark(&judge).unwrap();
                        let written = Grammar::lark_in_json_string(&lark).unwrap();
                        let is_fine = model.accepts(&judge, &text) || !model.accepts(&written, &in_json(&text));
                        assert!(is_fine, "{text:?} by {lark}");
                    }
                }
            }
        });
    }
}
