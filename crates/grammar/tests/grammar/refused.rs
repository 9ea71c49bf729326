//! What cannot be enforced is refused by keyword and place.

use kapitsa_grammar::{Grammar, supported_formats, supported_keywords};
use serde_json::{Value, json};

use crate::common::small_models;

fn refusal(schema: Value) -> String {
    let error = Grammar::json_schema(&schema).expect_err(&schema.to_string());
    error.to_string()
}

#[test]
fn the_message_names_keyword_and_place() {
    let inside = |schema: Value| json!({"type": "object", "properties": {"a/b": {"type": "array", "items": [schema]}}});
    let cases = [
        (json!({"not": {}}), "`not` at `#/properties/a~1b/items/0`: it is not supported"),
        (
            json!({"type": "text"}),
            "`type` at `#/properties/a~1b/items/0`: found \"text\", expected one or more of array, boolean, integer, null, number, object, string",
        ),
        (json!({"pattern": "[a-"}), "`pattern` at `#/properties/a~1b/items/0`: `[a-`: unclosed character class"),
        (
            json!({"pattern": "(?=x)"}),
            "`pattern` at `#/properties/a~1b/items/0`: `(?=x)`: look-around, including look-ahead and look-behind, is not supported",
        ),
        (
            json!({"pattern": "a\\"}),
            "`pattern` at `#/properties/a~1b/items/0`: `a\\`: incomplete escape sequence, reached end of pattern prematurely",
        ),
        (
            json!({"patternProperties": {"(": true}}),
            "`patternProperties` at `#/properties/a~1b/items/0`: `(`: unclosed group",
        ),
        (
            json!({"format": "regex"}),
            "`format` at `#/properties/a~1b/items/0`: `regex` is not supported; supported: date, date-time, duration, email, hostname, ipv4, ipv6, time, uri, uuid",
        ),
        (json!({"enum": []}), "`enum` at `#/properties/a~1b/items/0`: found [], expected a list of values"),
        (
            json!({"maxLength": -1}),
            "`maxLength` at `#/properties/a~1b/items/0`: found -1, expected a whole number below 10^9",
        ),
        (json!({"required": "a"}), "`required` at `#/properties/a~1b/items/0`: found \"a\", expected a list of names"),
        (json!({"multipleOf": 0}), "`multipleOf` at `#/properties/a~1b/items/0`: found 0, expected a number above 0"),
        (json!(7), "`type` at `#/properties/a~1b/items/0`: a schema must be an object or a boolean"),
        (json!({"$ref": "#/$defs/none"}), "`$ref` at `#/properties/a~1b/items/0`: there is nothing at `#/$defs/none`"),
        (
            json!({"$ref": "other.json"}),
            "`$ref` at `#/properties/a~1b/items/0`: found `other.json`, expected `#` or `#/…`: a place within the schema",
        ),
        (json!({"$ref": 5}), "`$ref` at `#/properties/a~1b/items/0`: found 5, expected a string"),
        (
            json!({"oneOf": [{"type": "integer"}, {"type": "number"}]}),
            "`oneOf` at `#/properties/a~1b/items/0`: options 0 and 1 may both match; only those that exclude one another by type, `const`, `enum` or a required property are supported: use `anyOf`",
        ),
        (
            json!({"properties": {"a": true}, "maxProperties": 3}),
            "`maxProperties` at `#/properties/a~1b/items/0`: it is supported only if all `properties` are required, or as 1 where there are no others",
        ),
    ];
    for (schema, message) in cases {
        assert_eq!(refusal(inside(schema)), format!("JSON schema: {message}"));
    }
}

#[test]
fn keywords_that_would_be_lost_are_refused() {
    for key in [
        "$dynamicRef",
        "contains",
        "dependencies",
        "dependentRequired",
        "dependentSchemas",
        "else",
        "if",
        "maxContains",
        "minContains",
        "not",
        "propertyNames",
        "then",
        "unevaluatedItems",
        "unevaluatedProperties",
        "uniqueItems",
    ] {
        let schema = json!({ key: if key == "uniqueItems" { json!(true) } else { json!({"const": 1}) } });
        assert_eq!(refusal(schema), format!("JSON schema: `{key}` at `#`: it is not supported"));
        assert!(!supported_keywords().contains(&key));
    }
    assert!(supported_keywords().is_sorted() && supported_formats().is_sorted());
}

#[test]
fn references_that_lead_nowhere_are_refused() {
    for schema in [
        json!({"$ref": "#"}),
        json!({"anyOf": [{"type": "null"}, {"$ref": "#"}]}),
        json!({"$ref": "#/$defs/a", "$defs": {"a": {"allOf": [{"$ref": "#/$defs/b"}]}, "b": {"$ref": "#/$defs/a"}}}),
        // One of the circle is met on another way first.
        json!({
            "$ref": "#/$defs/a",
            "$defs": {"a": {"properties": {"x": {"$ref": "#/$defs/b"}}, "$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}},
        }),
    ] {
        let message = refusal(schema);
        assert!(
            message.contains("`$ref`") && message.ends_with("it leads back to itself with nothing in between"),
            "{message}"
        );
    }
}

#[test]
fn what_no_text_fits_does_not_compile() {
    let model = &small_models()[0];
    for schema in [
        json!(false),
        json!({"type": "object", "properties": {"a": false}, "required": ["a"]}),
        json!({"type": "integer", "minimum": 3, "maximum": 2}),
        json!({"type": "string", "pattern": "^a$", "minLength": 2}),
        json!({"allOf": [{"type": "null"}, {"type": "string"}]}),
    ] {
        let error = model.compile(&Grammar::json_schema(&schema).unwrap()).unwrap_err().to_string();
        assert!(error.starts_with("grammar: ") && !error.contains('\n'), "{error}");
    }
}

#[test]
fn expressions_and_grammars_that_do_not_parse_are_errors() {
    let message = Grammar::regex("[a-").unwrap_err().to_string();
    assert_eq!(message, "regular expression `[a-`: unclosed character class");
    let model = &small_models()[0];
    for lark in ["", "start: nothing", "start: \"a", "start: /[a-/", "start: <|nothing|>", "start: %json {\"not\": {}}"]
    {
        let error = Grammar::lark(lark).and_then(|grammar| model.compile(&grammar)).unwrap_err().to_string();
        assert!(error.starts_with("grammar: ") && error.len() < 400, "{error}");
    }
    let nothing = model.compile(&Grammar::choice([])).unwrap_err().to_string();
    assert_eq!(nothing, "grammar: a choice between no options");
}
