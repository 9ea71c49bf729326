//! Arguments between tags.

use std::collections::HashSet;

use kapitsa_grammar::{Grammar, MAX_VALUES, Tags};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::common::{Model, assert_valid, in_string, json_rank, real_models, small_models, walk_by};

const QWEN: Tags = Tags { before_name: "<parameter=", after_name: ">\n", after_value: "\n</parameter>\n" };

const GLM: Tags =
    Tags { before_name: "<arg_key>", after_name: "</arg_key>\n<arg_value>", after_value: "</arg_value>\n" };

fn written(tags: &Tags, pairs: &[(&str, &str)]) -> String {
    let one =
        |(name, value): &(&str, &str)| [tags.before_name, name, tags.after_name, value, tags.after_value].concat();
    pairs.iter().map(one).collect()
}

/// Name and value of each property, by the first occurrence of each tag.
fn read(tags: &Tags, mut text: &str) -> Vec<(String, String)> {
    let mut pairs = vec![];
    while !text.is_empty() {
        let rest = text.strip_prefix(tags.before_name).unwrap_or_else(|| panic!("no name: {text:?}"));
        let (name, rest) = rest.split_once(tags.after_name).unwrap();
        let (value, rest) = rest.split_once(tags.after_value).unwrap();
        pairs.push((name.to_owned(), value.to_owned()));
        text = rest;
    }
    pairs
}

/// A reply of random tokens that ends its values soon once it is long.
fn walk_tagged(model: &Model, grammar: &Grammar, tags: &Tags, long: usize, seed: u64) -> String {
    let compiled = model.compile(grammar).unwrap();
    let closer = tags.after_value.as_bytes();
    walk_by(model, &compiled, long, &mut fastrand::Rng::with_seed(seed), |bytes| {
        let begun = (0..closer.len()).rev().find(|&count| bytes.ends_with(&closer[..count])).unwrap_or(0);
        let text = String::from_utf8_lossy(bytes);
        let is_in_string = in_string(text.rsplit(tags.after_name).next().unwrap_or_default().as_bytes());
        move |token: &[u8]| match json_rank(is_in_string, token) {
            _ if closer[begun..].starts_with(token) => 0,
            // The end of a number is the tag.
            2 => 4,
            rank => 1 + rank,
        }
    })
}

fn check(schema: Value, good: &[&[(&str, &str)]], bad: &[&[(&str, &str)]]) {
    let model = &small_models()[0];
    for tags in [QWEN, GLM] {
        let grammar = Grammar::tagged_object(&schema, &tags).unwrap_or_else(|error| panic!("{error}: {schema}"));
        for pairs in good {
            let text = written(&tags, pairs);
            assert!(model.accepts(&grammar, &text), "{text} by {schema}");
            if !text.is_empty() {
                assert!(!model.accepts(&grammar, &format!("{text} ")) && !model.accepts(&grammar, &format!(" {text}")));
                assert!(!model.accepts(&grammar, &text[..text.len() - 1]), "{text} by {schema}");
            }
        }
        for pairs in bad {
            let text = written(&tags, pairs);
            assert!(!model.accepts(&grammar, &text), "{text} by {schema}");
        }
    }
}

fn of(value: Value) -> Value {
    json!({"type": "object", "properties": {"v": value}, "required": ["v"]})
}

#[test]
fn strings_are_written_as_they_are_and_other_values_as_json() {
    let raw =
        ["", "a", "\"a\"", "<parameter=v>\nb\n</parameter", "<arg_key>x</arg_key>\n<arg_value>", " é\n\n{", "null"];
    let raw: Vec<[(&str, &str); 1]> = raw.map(|text| [("v", text)]).to_vec();
    let raw: Vec<&[(&str, &str)]> = raw.iter().map(|pairs| &pairs[..]).collect();
    for schema in [
        json!({"type": "string", "description": "d", "default": "x"}),
        json!({"type": ["string", "null"]}),
        json!({"anyOf": [{"type": "string"}, {"type": "null"}]}),
        json!({"type": "string", "format": "text"}),
        json!({"oneOf": [{"type": "array"}, {"type": "string"}]}),
        json!(true),
        json!({}),
    ] {
        check(of(schema), &raw, &[&[("w", "")], &[]]);
    }
    check(
        of(json!({"type": "integer"})),
        &[&[("v", "12")], &[("v", "-1")]],
        &[&[("v", "a")], &[("v", "")], &[("v", "\"1\"")]],
    );
    check(of(json!({"type": ["boolean", "null"]})), &[&[("v", "true")], &[("v", "null")]], &[&[("v", "True")]]);
    check(
        of(json!({"type": "array", "items": {"type": "string"}})),
        &[&[("v", "[\"a\", \"</parameter>\"]")], &[("v", "[ ]")]],
        &[&[("v", "[1]")], &[("v", "a")]],
    );
    check(
        of(json!({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "string"}}})),
        &[&[("v", "{\"b\": \"x\", \"a\": 1}")], &[("v", "{}")]],
        &[&[("v", "{\"a\": \"x\"}")]],
    );
    check(of(json!({"properties": {"a": {"type": "integer"}}})), &[&[("v", "{\"a\": 1}")]], &[&[("v", "a")]]);
}

#[test]
fn strings_are_held_to_their_keywords() {
    check(
        of(json!({"enum": ["a", "ab", "x y", 1, null, ["z"]]})),
        &[&[("v", "a")], &[("v", "ab")], &[("v", "x y")], &[("v", "1")], &[("v", "null")], &[("v", "[\"z\"]")]],
        &[&[("v", "b")], &[("v", "\"a\"")], &[("v", "")]],
    );
    check(of(json!({"type": "string", "enum": ["a", 1]})), &[&[("v", "a")]], &[&[("v", "1")]]);
    check(of(json!({"const": "a\"é"})), &[&[("v", "a\"é")]], &[&[("v", "a")]]);
    check(
        of(json!({"anyOf": [{"type": "string", "enum": ["a", "b"]}, {"type": "string", "const": "c"}]})),
        &[&[("v", "a")], &[("v", "c")]],
        &[&[("v", "d")]],
    );
    check(
        of(json!({"type": ["string", "integer"], "minLength": 2, "maxLength": 3})),
        &[&[("v", "éé")], &[("v", "<<<")], &[("v", "7")]],
        &[&[("v", "é")], &[("v", "abcd")], &[("v", "")], &[("v", "\n</parameter>"), ("v", "abc")]],
    );
    // Only the first character tells a string from other JSON.
    check(
        of(
            json!({"anyOf": [{"type": "string", "format": "ipv4"}, {"type": "null"}, {"type": "array"}, {"type": "boolean"}]}),
        ),
        &[&[("v", "1.1.1.1")], &[("v", "null")], &[("v", "[\"a\"]")], &[("v", "true")]],
        &[&[("v", "1")], &[("v", "nul")], &[("v", "{}")]],
    );
    check(
        of(json!({"type": ["string", "array", "object"], "minLength": 1})),
        &[&[("v", "a")], &[("v", "null")], &[("v", "[1]")], &[("v", "{\"a\": []}")]],
        &[&[("v", "")], &[("v", "[")]],
    );
    check(
        of(json!({"type": "string", "pattern": "^wf_[a-z0-9-]{2,}$"})),
        &[&[("v", "wf_a-9")]],
        &[&[("v", "wf_a")], &[("v", "xwf_aa")], &[("v", "wf_aa\n")]],
    );
    check(
        of(json!({"type": "string", "pattern": "\\d/|^b|(c$)"})),
        &[&[("v", "x1/y")], &[("v", "bx")], &[("v", "\n\"c")]],
        &[&[("v", "x")], &[("v", "xbx")], &[("v", "cx")], &[("v", "٣/")]],
    );
    check(of(json!({"type": "string", "pattern": "^$"})), &[&[("v", "")]], &[&[("v", "a")]]);
    check(
        of(json!({"type": "string", "pattern": "a", "minLength": 2, "allOf": [{"pattern": "b"}]})),
        &[&[("v", "b a")]],
        &[&[("v", "aa")], &[("v", "b")]],
    );
}

#[test]
fn formats() {
    for (name, good, bad) in [
        ("date", "2024-02-29", "2023-02-29"),
        ("date-time", "2024-02-28T10:00:00Z", "2024-02-28"),
        ("time", "10:00:00+01:00", "25:00:00Z"),
        ("duration", "P1Y2M3DT4H", "P"),
        ("email", "a.b@example.org", "a.b@"),
        ("hostname", "a-b.example", "-a"),
        ("ipv4", "10.0.0.255", "10.0.0.256"),
        ("ipv6", "fe80::1", "fe80:1"),
        ("ipv6", "::", ":"),
        ("uri", "https://a.example:80/b/c?d=e#f", "a.example"),
        ("uri", "mailto:a@b", "http://a b"),
        ("uuid", "123e4567-e89b-12d3-a456-426614174000", "123e4567"),
    ] {
        let schema = json!({"type": "string", "format": name});
        assert_valid(&schema, &json!(good).to_string());
        check(of(schema), &[&[("v", good)]], &[&[("v", bad)]]);
    }
}

#[test]
fn the_first_closing_tag_ends_the_value() {
    // Its end is its beginning, so that two of them may overlap.
    let tags = Tags { before_name: "[", after_name: "=", after_value: "aba" };
    let schema = |value: Value| json!({"type": "object", "properties": {"v": value, "w": {"type": "string"}}});
    let model = &small_models()[0];
    for value in [json!({"type": "string"}), json!({"type": "string", "pattern": "^[abc]*$"})] {
        let grammar = Grammar::tagged_object(&schema(value), &tags).unwrap();
        let accepts = |text: &str| model.accepts(&grammar, text);
        assert!(accepts("[v=aba") && accepts("[v=caba[w=aba") && accepts("[v=aaba") && accepts("[v=abcaba"));
        assert!(!accepts("[v=ababa") && !accepts("[v=abaaba") && !accepts("[v=ab"));
    }
}

#[test]
fn optional_properties_come_in_any_order_and_once() {
    let text = || json!({"type": "string"});
    let schema = json!({
        "type": "object", "properties": {"a": text(), "b": {"type": "integer"}, "c": text(), "never": false},
        "required": ["a", "c"], "additionalProperties": false,
    });
    check(
        schema,
        &[&[("a", "1"), ("c", "2")], &[("b", "1"), ("a", "1"), ("c", "2")], &[("a", "1"), ("c", "2"), ("b", "3")]],
        &[
            &[],
            &[("a", "1")],
            &[("c", "2"), ("a", "1")],
            &[("a", "1"), ("b", "1"), ("b", "1"), ("c", "2")],
            &[("a", "1"), ("a", "1"), ("c", "2")],
            &[("a", "1"), ("c", "2"), ("d", "2")],
            &[("a", "1"), ("never", "2"), ("c", "2")],
        ],
    );
    check(
        json!({"type": "object", "properties": {"a": text(), "b": text()}}),
        &[&[], &[("b", "1"), ("a", "2")], &[("a", "1")]],
        &[&[("a", "1"), ("a", "1")], &[("d", "1")]],
    );
    check(
        json!({"properties": {"a": text(), "b": text()}, "required": ["a", "b"]}),
        &[&[("a", "1"), ("b", "2")]],
        &[&[("b", "2"), ("a", "1")], &[("a", "1")]],
    );
    check(json!({"required": ["x"], "properties": {"y": true}}), &[&[("y", "1"), ("x", "2")]], &[&[("y", "1")]]);
    let many: Map<String, Value> = (0..70).map(|index| (format!("p{index}"), text())).collect();
    check(
        json!({"type": "object", "properties": many, "required": ["p1"]}),
        &[&[("p1", "")], &[("p0", ""), ("p1", ""), ("p69", "")]],
        &[&[("p2", ""), ("p1", "")], &[]],
    );
}

#[test]
fn objects_that_declare_no_properties() {
    let any: [&[(&str, &str)]; 3] = [&[], &[("a", "x"), ("b_2.c-D", "y")], &[("a", "\n"), ("a", "")]];
    for schema in
        [json!({"type": "object"}), json!({}), json!(true), json!({"properties": {}, "additionalProperties": {}})]
    {
        check(schema, &any, &[&[("", "x")], &[("a b", "x")]]);
    }
    check(
        json!({"type": "object", "additionalProperties": {"type": "integer"}}),
        &[&[], &[("a", "1"), ("b", "2")]],
        &[&[("a", "x")]],
    );
    check(json!({"type": "object", "additionalProperties": false}), &[&[]], &[&[("a", "1")]]);
}

#[test]
fn references_lead_anywhere() {
    let schema = json!({
        "$ref": "#/$defs/top",
        "$defs": {
            "top": {"type": "object", "properties": {
                "name": {"$ref": "#/$defs/name"}, "tree": {"$ref": "#/$defs/tree"}, "all": {"allOf": [{"$ref": "#/$defs/name"}]},
            }, "required": ["name", "tree"]},
            "name": {"type": "string", "maxLength": 2},
            "tree": {"type": "object", "properties": {"next": {"$ref": "#/$defs/tree"}, "x": {"type": "integer"}}, "additionalProperties": false},
        },
    });
    check(
        schema,
        &[&[("name", "ab"), ("tree", "{\"x\": 1, \"next\": {\"next\": {}}}"), ("all", "c")]],
        &[
            &[("name", "abc"), ("tree", "{}")],
            &[("name", "a"), ("tree", "{\"next\": 1}")],
            &[("name", "\"\""), ("tree", "{")],
        ],
    );
}

#[test]
fn refusals_name_keyword_and_place() {
    let refusal = |schema: &Value| Grammar::tagged_object(schema, &QWEN).expect_err(&schema.to_string()).to_string();
    for (schema, message) in [
        (json!({"type": "string"}), "`type` at `#`: the outermost value must be an object"),
        (json!(false), "`type` at `#`: the outermost value must be an object"),
        (
            json!({"type": "object", "anyOf": [{"required": ["a"]}]}),
            "`anyOf` at `#`: it is not supported in the outermost object between tags",
        ),
        (
            json!({"$ref": "#/$defs/a", "$defs": {"a": {"patternProperties": {}}}}),
            "`patternProperties` at `#/$defs/a`: it is not supported in the outermost object between tags",
        ),
        (of(json!({"not": {}})), "`not` at `#/properties/v`: it is not supported"),
        (
            of(json!({"type": "string", "pattern": "(?:a|^b)c"})),
            "`pattern` at `#/properties/v`: between tags it is supported only with `^` at its beginning and `$` at its end",
        ),
        (
            json!({"properties": {"v": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"type": "string", "pattern": "a(b|c$)"}}}),
            "`pattern` at `#/$defs/a`: between tags it is supported only with `^` at its beginning and `$` at its end",
        ),
        (
            of(json!({"const": "a\n</parameter>\n"})),
            "`const` at `#/properties/v`: a text holds the tag that comes after it",
        ),
        (
            of(json!({"enum": ["\n</parameter>"]})),
            "`enum` at `#/properties/v`: a text holds the tag that comes after it",
        ),
        (
            json!({"properties": {"a>\nb": true}}),
            "`properties` at `#/properties/a>\nb`: the name holds the tag that comes after it",
        ),
        (of(json!(false)), "`required` at `#/properties/v`: no value of it is allowed"),
        (of(json!({"type": "string", "enum": [1]})), "`required` at `#/properties/v`: no value of it is allowed"),
        (
            of(json!({"type": "string", "minLength": 3, "maxLength": 2})),
            "`required` at `#/properties/v`: no value of it is allowed",
        ),
        (
            json!({"properties": {}, "required": ["v"], "additionalProperties": false}),
            "`required` at `#/properties/v`: no value of it is allowed",
        ),
    ] {
        assert_eq!(refusal(&schema), format!("JSON schema: {message}"));
    }
    let tags = Tags { after_value: "", ..QWEN };
    let message = Grammar::tagged_object(&json!({}), &tags).unwrap_err().to_string();
    assert_eq!(message, "grammar: a tag after a name or a value is empty");
}

#[test]
fn large_schemas_compile_or_are_refused_with_the_limit() {
    let model = &small_models()[0];
    let names: Vec<String> = (0..4000).map(|index| format!("value number {index}")).collect();
    for value in [json!({"enum": names}), json!({"type": "string", "maxLength": 524_288})] {
        let grammar = Grammar::tagged_object(&of(value), &QWEN).unwrap();
        read(&QWEN, &walk_tagged(model, &grammar, &QWEN, 5, 1));
    }
    // Each option is two, so deep that they are more than there is memory for.
    let doubled: Map<String, Value> = (0..50)
        .map(|index| (format!("{index}"), json!({"anyOf": vec![json!({"$ref": format!("#/$defs/{}", index + 1)}); 2]})))
        .chain([("50".to_owned(), json!({"type": "string", "maxLength": 1}))])
        .collect();
    let schema = json!({"properties": {"v": {"$ref": "#/$defs/0"}}, "$defs": doubled});
    let message = Grammar::tagged_object(&schema, &QWEN).unwrap_err().to_string();
    assert!(message.ends_with("more than 20000 subschemas and values"), "{message}");
    let properties: Map<String, Value> =
        (0..50).map(|index| (format!("{index}"), json!({"$ref": "#/$defs/a"}))).collect();
    let schema = json!({"properties": properties, "$defs": {"a": {"enum": (0..MAX_VALUES / 40).collect::<Vec<_>>()}}});
    let message = Grammar::tagged_object(&schema, &QWEN).unwrap_err().to_string();
    assert!(message.ends_with("where each property counts all that it may refer to"), "{message}");
}

#[test]
fn the_tools_of_the_agents_compile() {
    let all: Vec<Value> = serde_json::from_str(include_str!("agents.json")).unwrap();
    let real = real_models().into_iter().map(|model| (model, 8));
    for (model, step) in small_models().into_iter().take(1).map(|model| (model, 1)).chain(real) {
        for (index, one) in all.iter().enumerate().step_by(step) {
            let tags = [QWEN, GLM][index / step % 2];
            let grammar = Grammar::tagged_object(&one["schema"], &tags)
                .unwrap_or_else(|error| panic!("{error}: {} {}", one["agent"], one["name"]));
            let text = walk_tagged(&model, &grammar, &tags, 20, index as u64);
            let pairs = read(&tags, &text);
            let required = one["schema"]["required"].as_array().map_or(&[][..], Vec::as_slice);
            assert!(required.iter().all(|name| pairs.iter().any(|(other, _)| name == other)), "{text}");
        }
    }
}

/// A value of a property, and whether it is written raw.
fn value() -> impl Strategy<Value = (Value, bool)> {
    let text = prop_oneof![
        Just(json!({"type": "string"})),
        (0u64..5, 0u64..5).prop_map(|(min, more)| json!({"type": "string", "minLength": min, "maxLength": min + more})),
        prop::collection::vec("[a-z\"\\\\é \n]{0,6}", 1..4)
            .prop_map(|values| json!({"type": "string", "enum": values})),
        prop::sample::select(vec!["date", "date-time", "ipv4", "ipv6", "time", "uuid"])
            .prop_map(|format| json!({"type": "string", "format": format})),
        prop::sample::select(vec!["^[a-f]{2,5}$", "^(ab|cd)+x?$", "^\\w{1,4}@\\w+$", "^.{0,3}$", "^[^a]", "^-"])
            .prop_map(|pattern| json!({"type": "string", "pattern": pattern})),
    ];
    let other = prop_oneof![
        Just(json!({"type": ["boolean", "null"]})),
        Just(json!({"type": "number", "minimum": -1.5, "maximum": 20})),
        (-50i64..50, 0i64..100)
            .prop_map(|(low, size)| json!({"type": "integer", "minimum": low, "maximum": low + size})),
        Just(json!({"type": "array", "items": {"type": "string"}, "maxItems": 3})),
        Just(
            json!({"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "null"}}, "required": ["b"]})
        ),
        Just(json!({"const": {"a": [1, "x", null]}})),
        Just(json!({"$ref": "#/$defs/shared"})),
    ];
    prop_oneof![text.prop_map(|schema| (schema, true)), other.prop_map(|schema| (schema, false))]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, max_shrink_iters: 50, ..ProptestConfig::default() })]
    #[test]
    fn replies_are_objects_that_the_schema_accepts(
        properties in prop::collection::vec(("[a-d\"é_]{1,3}", value(), any::<bool>()), 1..6),
        is_glm: bool,
        seed: u64,
    ) {
        thread_local! { static MODELS: Vec<Model> = small_models().into_iter().take(1).chain(real_models().into_iter().take(1)).collect(); }
        let mut seen = HashSet::new();
        let properties: Vec<_> = properties.into_iter().filter(|one| seen.insert(one.0.clone())).collect();
        let declared: Map<String, Value> = properties.iter().map(|(name, value, _)| (name.clone(), value.0.clone())).collect();
        let names: Vec<&String> = properties.iter().filter(|one| one.2).map(|one| &one.0).collect();
        let schema = json!({
            "type": "object", "properties": declared, "required": names, "additionalProperties": false,
            "$defs": {"shared": {"type": "array", "items": {"anyOf": [{"type": "integer"}, {"$ref": "#/$defs/shared"}]}}},
        });
        let tags = if is_glm { GLM } else { QWEN };
        let grammar = Grammar::tagged_object(&schema, &tags).unwrap();
        MODELS.with(|models| for model in models {
            let text = walk_tagged(model, &grammar, &tags, seed as usize % 60, seed);
            let pairs = read(&tags, &text);
            let mut object = Map::new();
            for (name, value) in &pairs {
                let is_text = properties.iter().find(|one| one.0 == *name).unwrap().1.1;
                let value = if is_text { json!(value) } else { serde_json::from_str(value).unwrap() };
                assert!(object.insert(name.clone(), value).is_none(), "{text}");
            }
            assert_valid(&schema, &Value::Object(object).to_string());
            let order: Vec<&String> = pairs.iter().map(|pair| &pair.0).filter(|name| names.contains(name)).collect();
            let expected: Vec<&String> = declared.keys().filter(|name| names.contains(name)).collect();
            assert_eq!(order, expected);
        });
    }
}
