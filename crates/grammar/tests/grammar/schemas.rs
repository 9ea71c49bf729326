//! Which texts a schema allows.

use kapitsa_grammar::Grammar;
use serde_json::{Value, json};

use crate::common::{Model, small_models};

fn model() -> Model {
    small_models().remove(0)
}

fn check(model: &Model, schema: Value, good: &[&str], bad: &[&str]) {
    let grammar = Grammar::json_schema(&schema).unwrap();
    for text in good {
        assert!(model.accepts(&grammar, text), "{schema} refuses {text}");
    }
    for text in bad {
        assert!(!model.accepts(&grammar, text), "{schema} accepts {text}");
    }
}

#[test]
fn values_of_every_type() {
    let model = model();
    check(&model, json!(true), &["1", "[{}]", "\"é\""], &["", "x", "{1:2}"]);
    check(
        &model,
        json!({"type": "integer", "minimum": -3, "exclusiveMaximum": 12}),
        &["-3", "11"],
        &["-4", "12", "1.5", "01"],
    );
    check(&model, json!({"type": ["null", "boolean"]}), &["null", "true"], &["0"]);
    check(&model, json!({"type": "number", "multipleOf": 0.5}), &["1.5", "-2"], &["1.3"]);
    check(
        &model,
        json!({"type": "string", "minLength": 2, "maxLength": 3}),
        &["\"ab\"", "\"日本語\""],
        &["\"a\"", "\"abcd\""],
    );
    check(&model, json!({"type": "string", "pattern": "^[a-z]+/\\d$"}), &["\"ab/1\""], &["\"ab/é\"", "\"ab\""]);
    check(&model, json!({"type": "string", "format": "date"}), &["\"2026-11-30\""], &["\"2026-13-01\""]);
    check(
        &model,
        json!({"enum": ["a\"b", 1, null, {"x": [true]}]}),
        &["\"a\\\"b\"", "1", "null", "{\"x\": [true]}"],
        &["\"a\"", "2"],
    );
    check(&model, json!({"const": "é"}), &["\"é\""], &["\"e\"", "\"\\u00e9\""]);
}

#[test]
fn lists() {
    let model = model();
    let two = json!({"type": "array", "items": {"type": "integer"}, "minItems": 1, "maxItems": 2});
    check(&model, two, &["[1]", "[1, 2]", "[\n 1,2 ]"], &["[]", "[1,2,3]", "[\"a\"]"]);
    let tuple = json!({"type": "array", "prefixItems": [{"type": "integer"}, {"type": "null"}], "items": false});
    check(&model, tuple, &["[1, null]", "[1]"], &["[null]", "[1, null, 2]"]);
    let old = json!({"type": "array", "items": [{"type": "integer"}], "additionalItems": {"type": "null"}});
    check(&model, old, &["[1, null]"], &["[1, 2]"]);
}

#[test]
fn white_space_has_an_end() {
    let (model, blanks) = (model(), |count| format!("[{}1]", " ".repeat(count)));
    let list = json!({"type": "array", "items": {"type": "integer"}});
    check(&model, list, &[&blanks(64)], &[&blanks(65), " [1]"]);
}

/// `start_line` is not lost when the model names `end_line` first.
#[test]
fn optional_properties_come_in_any_order_required_ones_in_that_of_the_schema() {
    let model = model();
    let schema = json!({
        "type": "object",
        "properties": {
            "path": {"type": "string"}, "start_line": {"type": "integer"}, "end_line": {"type": "integer"}, "text": {"type": "string"},
        },
        "required": ["path", "text"],
        "additionalProperties": false,
    });
    let good = [
        r#"{"path": "a", "text": "b"}"#,
        r#"{"path": "a", "end_line": 2, "start_line": 1, "text": "b"}"#,
        r#"{"end_line": 2, "path": "a", "text": "b", "start_line": 1}"#,
    ];
    let bad = [
        "{}",
        r#"{"path": "a"}"#,
        r#"{"text": "b", "path": "a"}"#,
        r#"{"path": "a", "end_line": 2, "end_line": 1, "text": "b"}"#,
        r#"{"path": "a", "text": "b", "more": 1}"#,
        r#"{"path\"": "a", "text": "b"}"#,
    ];
    check(&model, schema.clone(), &good, &bad);
    let mut open = schema;
    open["additionalProperties"] = json!({"type": "integer"});
    let good = [r#"{"path": "a", "text": "b", "more": 1, "end_line": 2}"#];
    // What is not declared waits for what is required.
    check(
        &model,
        open,
        &good,
        &[r#"{"path": "a", "more": 1, "text": "b"}"#, r#"{"more": 1, "path": "a", "text": "b"}"#],
    );
    let open = json!({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}});
    let good = ["{}", r#"{"b": 1, "x": [null], "a": 2}"#, r#"{"x": 1}"#];
    check(&model, open, &good, &[r#"{"a": "1"}"#, r#"{"a\"": 1}"#, r#"{"\u0061": "1"}"#]);
    let closed = json!({"type": "object", "properties": {"a": false, "b\"\\é": {"type": "null"}}, "additionalProperties": {"type": "integer"}});
    check(&model, closed, &[r#"{"b\"\\é": null, "c": 1}"#], &[r#"{"a": 1}"#, r#"{"c": null}"#]);
}

#[test]
fn inner_objects_have_the_order_of_the_schema() {
    let inner = json!({"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}});
    let list = json!({"type": "array", "items": inner});
    check(&model(), list, &[r#"[{"a": 1, "b": 2}, {"b": 2}, {}]"#], &[r#"[{"b": 1, "a": 2}]"#]);
}

#[test]
fn objects_by_pattern_and_number() {
    let model = model();
    let patterns =
        json!({"type": "object", "patternProperties": {"^x-": {"type": "integer"}}, "additionalProperties": false});
    check(&model, patterns, &["{\"x-a\": 1}", "{}"], &["{\"x-a\": null}", "{\"a\": 1}"]);
    let some =
        json!({"type": "object", "minProperties": 1, "maxProperties": 2, "additionalProperties": {"type": "integer"}});
    check(&model, some, &["{\"a\": 1}", "{\"a\": 1, \"b\": 2}"], &["{}", "{\"a\": 1, \"b\": 2, \"c\": 3}"]);
    let one = json!({
        "type": "object", "properties": {"a": {"type": "null"}, "b": {"type": "null"}}, "minProperties": 1,
        "additionalProperties": false,
    });
    check(&model, one, &["{\"a\": null}", "{\"b\": null}", "{\"a\": null, \"b\": null}"], &["{}"]);
}

#[test]
fn references_lead_anywhere_in_the_schema() {
    let model = model();
    let schema = json!({
        "type": "object",
        "properties": {
            "t": {"type": "object", "properties": {"left": {"anyOf": [{"enum": ["x", "y"]}, {"type": "null"}]}}, "required": ["left"], "additionalProperties": false},
            "list": {"$ref": "#/properties/t/properties/left/anyOf/0"},
            "same": {"$ref": "#/properties/list"},
            "odd": {"$ref": "#/$defs/a~1b%25"},
        },
        "required": ["t", "list", "same", "odd"],
        "additionalProperties": false,
        "$defs": {"a/b%": {"type": "integer"}},
    });
    let good = r#"{"t": {"left": null}, "list": "x", "same": "y", "odd": 1}"#;
    check(
        &model,
        schema,
        &[good],
        &[&good.replace("\"x\"", "\"z\""), &good.replace("\"y\"", "\"z\""), &good.replace('1', "null")],
    );
}

#[test]
fn schemas_may_contain_themselves() {
    let model = model();
    let tree = json!({
        "$id": "https://example.org/tree", "$ref": "https://example.org/tree#/definitions/node",
        "definitions": {"node": {
            "type": "object",
            "properties": {"value": {"type": "integer"}, "next": {"anyOf": [{"$ref": "#/definitions/node"}, {"type": "null"}]}},
            "required": ["value"],
            "additionalProperties": false,
        }},
    });
    check(
        &model,
        tree,
        &[r#"{"value": 1, "next": {"value": 2, "next": null}}"#],
        &[r#"{"value": 1, "next": {"next": null}}"#],
    );
    // The option is known before the definition is read to its end.
    let list = json!({"$ref": "#/$defs/node", "$defs": {"node": {
        "type": "object", "properties": {"next": {"oneOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}}, "required": ["next"],
        "additionalProperties": false,
    }}});
    check(&model, list, &[r#"{"next": {"next": null}}"#], &[r#"{"next": {}}"#]);
    let nested = json!({"anyOf": [{"type": "integer"}, {"type": "array", "items": {"$ref": "#"}}]});
    check(&model, nested, &["1", "[[1, [2]], 3]"], &["[null]"]);
    let top = json!({"type": "object", "properties": {"a": {"$ref": "#"}, "b": {"type": "null"}}, "additionalProperties": false});
    check(&model, top, &[r#"{"b": null, "a": {"a": {}}}"#], &[r#"{"a": 1}"#]);
}

#[test]
fn options_that_exclude_one_another() {
    let model = model();
    let by_kind = json!({"oneOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}, {"type": "string"}], "$defs": {
        "a": {"type": "object", "properties": {"kind": {"const": "a"}, "x": {"type": "integer"}}, "required": ["kind", "x"], "additionalProperties": false},
        "b": {"type": "object", "properties": {"kind": {"enum": ["b", "c"]}}, "required": ["kind"], "additionalProperties": false},
    }});
    let good = [r#"{"kind": "a", "x": 1}"#, r#"{"kind": "c"}"#, "\"s\""];
    check(&model, by_kind, &good, &[r#"{"kind": "a"}"#, r#"{"kind": "b", "x": 1}"#]);
    let both = json!({"allOf": [{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}, {"properties": {"a": {"minimum": 5}}}]});
    check(&model, both, &["{\"a\": 5}"], &["{\"a\": 4}", "{}"]);
}

#[test]
fn descriptions_and_unknown_keywords_change_nothing() {
    let schema = json!({
        "$schema": "http://json-schema.org/draft-07/schema#", "$comment": "c", "title": "t", "description": "d", "default": 1,
        "examples": [1], "deprecated": true, "readOnly": true, "x-guidance": {"lenient": true, "whitespace_flexible": false},
        "x-order": 1, "nullable": false, "type": "integer", "format": "int32", "uniqueItems": false,
    });
    check(&model(), schema, &["1"], &["\"a\""]);
    check(
        &model(),
        json!({"type": "object", "propertyNames": {"type": "string"}, "additionalProperties": {}}),
        &["{\"a\": [1]}"],
        &[],
    );
}
